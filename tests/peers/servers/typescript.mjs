// A server of the official TypeScript SDK, second generation. Run by the Node of the wheel.
//
//     node typescript.mjs http PORT
//     node typescript.mjs stdio
//
// It serves both eras with the same handlers: where a client is of the older era, the SDK itself asks it.
// Over HTTP the older era gets sessions, for without them it cannot be asked anything. What the server must
// answer stands in `test_foreign_servers.py`.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.peers/typescript/', import.meta.url));
const { McpServer, ResourceTemplate, completable, createMcpHandler, inputRequired, inputResponse, isLegacyRequest } =
    require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = require('@modelcontextprotocol/node');
const { z } = require('zod');

const [transport, port] = process.argv.slice(2);

let abandon;
const abandonedOnce = new Promise(resolve => (abandon = resolve));
const aborted = signal => new Promise(resolve => signal.addEventListener('abort', resolve));
let listeners; // Over HTTP those who listen in the modern era belong to the handler, not to one server.

const text = words => ({ content: [{ type: 'text', text: words }] });
const form = (message, fields) => inputRequired.elicit({ message, requestedSchema: z.object(fields) });
const sampling = words =>
    inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: words } }], maxTokens: 40 });
const ask = (inputRequests, requestState) => inputRequired({ inputRequests, requestState });
const answer = (ctx, key) => inputResponse(ctx.mcpReq.inputResponses, key);
const missing = view => view.kind === 'missing';
const uris = view => view.roots.map(({ uri }) => uri).join(', ');

function build() {
    const server = new McpServer(
        { name: 'foreign', version: '2.4.0' },
        { instructions: 'Ask for anything.', capabilities: { logging: {} } }
    );
    addTools(server);
    addAsking(server);
    addContent(server);
    return server;
}

// Tools that ask nothing

function addTools(server) {
    server.registerTool(
        'add',
        { inputSchema: z.object({ a: z.number(), b: z.number() }), outputSchema: z.object({ total: z.number() }) },
        async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { total: a + b } })
    );
    server.registerTool('fails', {}, async () => {
        throw new Error('The ticket office is closed.');
    });
    server.registerTool('travels', {}, async ctx => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (const [index, message] of ['left', 'half way', 'there'].entries()) {
            if (progressToken === undefined) break;
            const params = { progressToken, progress: index + 1, total: 3, message };
            await ctx.mcpReq.notify({ method: 'notifications/progress', params });
        }
        return text('arrived');
    });
    server.registerTool('talks', {}, async ctx => {
        await ctx.mcpReq.log('info', 'a word', 'foreign.talks');
        await ctx.mcpReq.log('warning', { loud: true });
        return text('said');
    });
    server.registerTool('hangs', {}, async ctx => {
        await aborted(ctx.mcpReq.signal);
        abandon();
        return text('never');
    });
    server.registerTool('abandoned', {}, async () => {
        await abandonedOnce;
        return text('abandoned');
    });
    server.registerTool('changes', {}, async () => {
        if (listeners) listeners.toolsChanged();
        server.sendToolListChanged();
        return text('changed');
    });
}

// Tools that ask

function addAsking(server) {
    server.registerTool('order', { inputSchema: z.object({ item: z.string() }) }, async ({ item }, ctx) => {
        const given = answer(ctx, 'order');
        if (missing(given)) return ask({ order: form(`Order ${item}?`, { quantity: z.int() }) });
        return text(`${item}: ${given.action === 'accept' ? given.content.quantity : given.action}`);
    });
    server.registerTool('visit', {}, async ctx => {
        const given = answer(ctx, 'page');
        const page = { message: 'Please sign in.', url: 'https://login.example/start' };
        return missing(given) ? ask({ page: inputRequired.elicitUrl(page) }) : text(`visit: ${given.action}`);
    });
    server.registerTool('poem', {}, async ctx => {
        const given = answer(ctx, 'poem');
        return missing(given) ? ask({ poem: sampling('A haiku') }) : text(given.result.content.text);
    });
    server.registerTool('places', {}, async ctx => {
        const given = answer(ctx, 'places');
        return missing(given) ? ask({ places: inputRequired.listRoots() }) : text(uris(given));
    });
    server.registerTool('survey', {}, async ctx => {
        const [name, poem, roots] = ['name', 'poem', 'roots'].map(key => answer(ctx, key));
        if (missing(name)) {
            return ask({
                name: form('Your name?', { value: z.string() }),
                poem: sampling('A haiku'),
                roots: inputRequired.listRoots()
            });
        }
        return text(`${name.content.value} | ${poem.result.content.text} | ${uris(roots)}`);
    });
    server.registerTool('journey', {}, async ctx => {
        const [city, days, plan] = ['city', 'days', 'plan'].map(key => answer(ctx, key));
        const state = ctx.mcpReq.requestState();
        if (!missing(plan)) return text(`${state}: ${plan.result.content.text}`);
        if (!missing(days)) {
            const stay = `${days.content.value} days`;
            return ask({ plan: sampling(`Plan ${stay} in ${state}.`) }, `${state}, ${stay}`);
        }
        if (missing(city)) return ask({ city: form('Which city?', { value: z.string() }) });
        const name = city.content.value;
        return ask({ days: form(`How many days in ${name}?`, { value: z.int() }) }, name);
    });
    server.registerTool('counts', {}, async ctx => {
        const count = Number(ctx.mcpReq.requestState() ?? '0');
        return count === 2 ? text(`counted to ${count}`) : inputRequired({ requestState: String(count + 1) });
    });
}

// Prompts and resources

function addContent(server) {
    const user = words => ({ messages: [{ role: 'user', content: { type: 'text', text: words } }] });
    const contents = (uri, words) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: words }] });
    const template = pattern => new ResourceTemplate(pattern, { list: undefined });
    const topics = value => ['trains', 'trams'].filter(topic => topic.startsWith(value));

    server.registerPrompt('motto', {}, async () => user('Be on time.'));
    server.registerPrompt(
        'briefing',
        { argsSchema: z.object({ topic: completable(z.string(), topics) }) },
        async ({ topic }, ctx) => {
            const given = answer(ctx, 'who');
            if (missing(given)) return ask({ who: form(`Who reads about ${topic}?`, { value: z.string() }) });
            return user(`Explain ${topic} to ${given.content.value}.`);
        }
    );
    server.registerResource('plain', 'note://plain', { mimeType: 'text/plain' }, async uri =>
        contents(uri, 'plain words')
    );
    server.registerResource('page', template('note://{name}/page'), {}, async (uri, { name }) =>
        contents(uri, `the page of ${name}`)
    );
    server.registerResource('vault', template('vault://{name}'), {}, async (uri, { name }, ctx) => {
        const given = answer(ctx, 'password');
        if (missing(given)) return ask({ password: form(`The password of ${name}?`, { value: z.string() }) });
        return contents(uri, `opened with ${given.content.value}`);
    });
}

// HTTP

const sessions = new Map();

async function serveOlder(req, res, parsed) {
    let wire = sessions.get(req.headers['mcp-session-id']);
    if (!wire) {
        wire = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: id => void sessions.set(id, wire),
            onsessionclosed: id => void sessions.delete(id)
        });
        await build().connect(wire);
    }
    await wire.handleRequest(req, res, parsed);
}

async function body(req) {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    return chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
}

if (transport === 'stdio') {
    serveStdio(build);
} else {
    const handler = createMcpHandler(build, { legacy: 'reject' });
    const serveModern = toNodeHandler(handler);
    listeners = handler.notify;
    createServer(async (req, res) => {
        const parsed = await body(req);
        const older = await isLegacyRequest(await toWebRequest(req, parsed), parsed);
        await (older ? serveOlder : serveModern)(req, res, parsed);
    }).listen(Number(port), '127.0.0.1');
}
