// A server of the official TypeScript SDK, first generation. Run by the Node of the wheel.
//
//     node typescript1.mjs http PORT
//     node typescript1.mjs stdio
//
// It knows only the older era, in which a handler awaits the answers to requests of its own: some go out on
// the stream of the call, some on the stream that belongs to no call. What the server must answer stands in
// `test_foreign_servers.py`.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.peers/typescript/', import.meta.url));
const { McpServer, ResourceTemplate } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { completable } = require('@modelcontextprotocol/sdk/server/completable.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { z } = require('zod');

const [transport, port] = process.argv.slice(2);

let abandon;
const abandonedOnce = new Promise(resolve => (abandon = resolve));
const aborted = signal => new Promise(resolve => signal.addEventListener('abort', resolve));

const text = words => ({ content: [{ type: 'text', text: words }] });
const STRING = { value: { type: 'string' } };
const INTEGER = { value: { type: 'integer' } };

// What a handler can ask; `related` puts a request on the stream of the call.
function asking(server) {
    const related = extra => ({ relatedRequestId: extra.requestId });
    return {
        form: (message, properties, extra) => {
            const requestedSchema = { type: 'object', properties, required: Object.keys(properties) };
            return server.server.elicitInput({ mode: 'form', message, requestedSchema }, related(extra));
        },
        page: (message, url, extra) =>
            server.server.elicitInput({ mode: 'url', message, url, elicitationId: 'id' }, related(extra)),
        sample: async words => {
            const message = { role: 'user', content: { type: 'text', text: words } };
            return (await server.server.createMessage({ messages: [message], maxTokens: 40 })).content.text;
        },
        roots: async () => (await server.server.listRoots()).roots.map(({ uri }) => uri).join(', ')
    };
}

function build() {
    const server = new McpServer(
        { name: 'foreign', version: '1.32.2' },
        { instructions: 'Ask for anything.', capabilities: { logging: {} } }
    );
    addTools(server);
    addAsking(server, asking(server));
    addContent(server, asking(server));
    return server;
}

// Tools that ask nothing

function addTools(server) {
    server.registerTool(
        'add',
        { inputSchema: { a: z.number(), b: z.number() }, outputSchema: { total: z.number() } },
        async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { total: a + b } })
    );
    server.registerTool('fails', {}, async () => {
        throw new Error('The ticket office is closed.');
    });
    server.registerTool('travels', {}, async extra => {
        const progressToken = extra._meta?.progressToken;
        for (const [index, message] of ['left', 'half way', 'there'].entries()) {
            if (progressToken === undefined) break;
            const params = { progressToken, progress: index + 1, total: 3, message };
            await extra.sendNotification({ method: 'notifications/progress', params });
        }
        return text('arrived');
    });
    server.registerTool('talks', {}, async extra => {
        const log = params => extra.sendNotification({ method: 'notifications/message', params });
        await log({ level: 'info', data: 'a word', logger: 'foreign.talks' });
        await log({ level: 'warning', data: { loud: true } });
        return text('said');
    });
    server.registerTool('hangs', {}, async extra => {
        await aborted(extra.signal);
        abandon();
        return text('never');
    });
    server.registerTool('abandoned', {}, async () => {
        await abandonedOnce;
        return text('abandoned');
    });
    server.registerTool('changes', {}, async () => {
        server.sendToolListChanged();
        return text('changed');
    });
}

// Tools that ask

function addAsking(server, { form, page, sample, roots }) {
    server.registerTool('order', { inputSchema: { item: z.string() } }, async ({ item }, extra) => {
        const given = await form(`Order ${item}?`, { quantity: { type: 'integer' } }, extra);
        return text(`${item}: ${given.action === 'accept' ? given.content.quantity : given.action}`);
    });
    server.registerTool('visit', {}, async extra =>
        text(`visit: ${(await page('Please sign in.', 'https://login.example/start', extra)).action}`)
    );
    server.registerTool('poem', {}, async () => text(await sample('A haiku')));
    server.registerTool('places', {}, async () => text(await roots()));
    server.registerTool('survey', {}, async extra => {
        const asked = [form('Your name?', STRING, extra), sample('A haiku'), roots()];
        const [name, poem, where] = await Promise.all(asked);
        return text(`${name.content.value} | ${poem} | ${where}`);
    });
    server.registerTool('journey', {}, async extra => {
        const city = (await form('Which city?', STRING, extra)).content.value;
        const days = (await form(`How many days in ${city}?`, INTEGER, extra)).content.value;
        return text(`${city}, ${days} days: ${await sample(`Plan ${days} days in ${city}.`)}`);
    });
}

// Prompts and resources

function addContent(server, { form }) {
    const user = words => ({ messages: [{ role: 'user', content: { type: 'text', text: words } }] });
    const contents = (uri, words) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: words }] });
    const template = pattern => new ResourceTemplate(pattern, { list: undefined });
    const topics = value => ['trains', 'trams'].filter(topic => topic.startsWith(value));

    server.registerPrompt('motto', {}, async () => user('Be on time.'));
    const argsSchema = { topic: completable(z.string(), topics) };
    server.registerPrompt('briefing', { argsSchema }, async ({ topic }, extra) => {
        const given = await form(`Who reads about ${topic}?`, STRING, extra);
        return user(`Explain ${topic} to ${given.content.value}.`);
    });
    server.registerResource('plain', 'note://plain', { mimeType: 'text/plain' }, async uri =>
        contents(uri, 'plain words')
    );
    server.registerResource('page', template('note://{name}/page'), {}, async (uri, { name }) =>
        contents(uri, `the page of ${name}`)
    );
    server.registerResource('vault', template('vault://{name}'), {}, async (uri, { name }, extra) => {
        const given = await form(`The password of ${name}?`, STRING, extra);
        return contents(uri, `opened with ${given.content.value}`);
    });
}

// HTTP

const sessions = new Map();

async function serve(req, res) {
    let wire = sessions.get(req.headers['mcp-session-id']);
    if (!wire) {
        wire = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: id => void sessions.set(id, wire),
            onsessionclosed: id => void sessions.delete(id)
        });
        await build().connect(wire);
    }
    await wire.handleRequest(req, res);
}

if (transport === 'stdio') {
    await build().connect(new StdioServerTransport());
} else {
    createServer(serve).listen(Number(port), '127.0.0.1');
}
