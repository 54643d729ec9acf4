// What the official TypeScript client sees of a server. Run by the Node of the wheel.
//
//     node typescript_client.mjs http URL < plan
//     node typescript_client.mjs stdio COMMAND ARGUMENT... < plan
//
// The plan says which steps to take; what came of them is printed as one JSON object. Whatever the
// plan does not provide for ends the script with a trace.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../.peers/node/', import.meta.url));
const { Client, ProtocolError, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const PATIENCE = 20_000; // Milliseconds for anything that must come; the whole run takes two seconds.
const [transport, ...target] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(0, 'utf8'));

const LISTS = {
    tools: 'tools/list',
    prompts: 'prompts/list',
    resources: 'resources/list',
    resourceTemplates: 'resources/templates/list'
};
const EVENTS = {
    'notifications/tools/list_changed': 'ToolsListChanged',
    'notifications/prompts/list_changed': 'PromptsListChanged',
    'notifications/resources/list_changed': 'ResourcesListChanged',
    'notifications/resources/updated': 'ResourceUpdated'
};

// What callbacks were called with, and a way to wait for it.
class Inbox {
    items = [];
    #arrived = () => {};

    put = item => {
        this.items.push(item);
        this.#arrived();
    };

    async first(count) {
        while (this.items.length < count) {
            const arrival = new Promise(resolve => (this.#arrived = resolve));
            await within(`item ${count} after ${JSON.stringify(this.items)}`, arrival);
        }
        return this.items;
    }
}

async function within(what, promise) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`still waiting for ${what}`)), PATIENCE);
    });
    try {
        return await Promise.race([promise, late]);
    } finally {
        clearTimeout(timer);
    }
}

const DO = {
    async call(client, { name, arguments: args, meta }) {
        return { result: await client.callTool({ name, arguments: args, _meta: meta }, { timeout: PATIENCE }) };
    },
    // Call a tool; when all its progress has come, make the call that lets it end.
    async follow(client, { name, progress, then }) {
        const inbox = new Inbox();
        const running = client.callTool({ name }, { timeout: PATIENCE, onprogress: inbox.put });
        await inbox.first(progress);
        await perform(client, then);
        return { result: await running, progress: inbox.items };
    },
    async read(client, { uri }) {
        return { result: await client.readResource({ uri }) };
    },
    async get(client, { name, arguments: args }) {
        return { result: await client.getPrompt({ name, arguments: args }) };
    },
    async complete(client, { ref, argument, context }) {
        return { result: await client.complete({ ref, argument, context: context && { arguments: context } }) };
    }
};

async function perform(client, step) {
    try {
        return await DO[step.do](client, step);
    } catch (error) {
        if (!(error instanceof ProtocolError)) throw error;
        return { error: { code: error.code, message: error.message, data: error.data } };
    }
}

async function performAll(client, steps) {
    const outcomes = {};
    for (const [name, step] of Object.entries(steps)) outcomes[name] = await perform(client, step);
    return outcomes;
}

async function listPages(client, method) {
    const pages = [];
    let params;
    do {
        pages.push(await client.request({ method, params }));
        params = { cursor: pages.at(-1).nextCursor };
    } while (params.cursor !== undefined);
    return pages;
}

async function listEverything(client) {
    // The client's own verbs come first: they join the pages, and from them it learns the schemas.
    const joined = {
        tools: (await client.listTools()).tools,
        prompts: (await client.listPrompts()).prompts,
        resources: (await client.listResources()).resources,
        resourceTemplates: (await client.listResourceTemplates()).resourceTemplates
    };
    const pages = {};
    for (const [field, method] of Object.entries(LISTS)) {
        pages[field] = await listPages(client, method);
        const walked = JSON.stringify(pages[field].flatMap(page => page[field]));
        if (walked !== JSON.stringify(joined[field])) throw new Error(`${method}: the pages differ from the list`);
    }
    return pages;
}

// Cancel a call once it runs, and ask the server whether it noticed.
async function abandon(client, { name, then }) {
    const started = new Inbox();
    const controller = new AbortController();
    const call = client.callTool({ name }, { onprogress: started.put, signal: controller.signal });
    const ended = call.then(() => false, () => controller.signal.aborted);
    await started.first(1);
    controller.abort();
    return { cancelled: await ended, then: await perform(client, then) };
}

// Subscribe, cause changes, and leave.
async function watch(client, plan) {
    const subscription = await client.listen(plan.filter);
    const seen = await changes(client, plan, subscription);
    await subscription.close();
    return seen;
}

// Subscribe, cause changes, look at what is different now, and stay until the server ends.
async function watchToTheEnd(client, plan) {
    const subscription = await client.listen(plan.filter);
    return {
        ...(await changes(client, plan, subscription)),
        lists: await listEverything(client),
        after: await performAll(client, plan.after),
        end: await within('the end of the subscription', subscription.closed)
    };
}

async function changes(client, plan, subscription) {
    const inbox = new Inbox();
    for (const [method, kind] of Object.entries(EVENTS)) {
        client.setNotificationHandler(method, ({ params }) => inbox.put({ kind, uri: params?.uri }));
    }
    return {
        honoured: subscription.honoredFilter,
        caused: await performAll(client, plan.steps),
        events: await inbox.first(plan.events)
    };
}

async function observe(client, logs) {
    return {
        protocolVersion: client.getNegotiatedProtocolVersion(),
        discovered: client.getDiscoverResult(),
        serverInfo: client.getServerVersion(),
        capabilities: client.getServerCapabilities(),
        instructions: client.getInstructions(),
        unlisted: await performAll(client, plan.unlisted),
        lists: await listEverything(client),
        steps: await performAll(client, plan.steps),
        logs: await logs.first(plan.logs),
        together: await within('calls together', Promise.all(plan.together.map(step => perform(client, step)))),
        abandoned: await abandon(client, plan.abandon),
        narrow: await watch(client, plan.narrow),
        wide: await watchToTheEnd(client, plan.wide)
    };
}

async function connected(mode, use) {
    const client = new Client(plan.client, { versionNegotiation: { mode } });
    client.onerror = error => stray.push(String(error));
    const [command, ...args] = target;
    const wire =
        transport === 'http'
            ? new StreamableHTTPClientTransport(new URL(target[0]))
            : new StdioClientTransport({ command, args });
    await client.connect(wire, { timeout: PATIENCE });
    const seen = await use(client);
    // A stream that is still being opened is given up by the client itself.
    client.onerror = error => error.name === 'AbortError' || stray.push(String(error));
    await client.close();
    return seen;
}

const stray = []; // Errors that no call reported.
const pinned = await connected({ pin: plan.version }, client => perform(client, plan.pinned));
const logs = new Inbox();
const seen = await connected('auto', client => {
    client.setNotificationHandler('notifications/message', ({ params }) => logs.put(params));
    return observe(client, logs);
});
console.log(JSON.stringify({ pinned, ...seen, stray }));
