// The first generation of the official TypeScript client answers what a server asks. Run by the Node of the wheel.
//
//     node typescript1_client.mjs auto http URL < plan
//     node typescript1_client.mjs auto stdio COMMAND ARGUMENT... < plan
//
// The plan says what to call and what the user, the model and the client then answer; what came of each
// call, and what was asked for it, is printed as one JSON object.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.peers/typescript/', import.meta.url));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const PATIENCE = 20_000; // Milliseconds for any single request; the whole run takes two seconds.
const [, transport, ...target] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(0, 'utf8'));

const options = { timeout: PATIENCE };
const DO = {
    call: (client, { name, arguments: args }) => client.callTool({ name, arguments: args }, undefined, options),
    get: (client, { name, arguments: args }) => client.getPrompt({ name, arguments: args }, options),
    read: (client, { uri }) => client.readResource({ uri }, options)
};

// Whoever answers. A question that the plan does not provide for is answered with an error.
const person = {
    answers: {},
    asked: [],
    together: 1, // So many questions are open before one is answered.
    waiting: [],
    async answer(method, text, detail = null) {
        this.asked.push({ method, text, detail });
        await new Promise(resolve => {
            this.waiting.push(resolve);
            if (this.waiting.length === this.together) this.waiting.splice(0).forEach(go => go());
        });
        const answers = this.answers[text];
        if (!answers?.length) throw new Error(`nobody can answer ${JSON.stringify(text)}`);
        return answers.shift();
    }
};

async function perform(client, step) {
    try {
        return { result: await DO[step.do](client, step) };
    } catch (error) {
        if (!(error instanceof types.McpError)) throw error;
        return { error: { code: error.code, message: error.message, data: error.data } };
    }
}

async function answerAll(client, cases) {
    const seen = {};
    for (const [name, { step, answers, together }] of Object.entries(cases)) {
        Object.assign(person, { answers, together, asked: [] });
        const outcome = await perform(client, step);
        const left = Object.fromEntries(Object.entries(answers).filter(([, rest]) => rest.length > 0));
        seen[name] = { ...outcome, asked: person.asked, left };
    }
    return seen;
}

function ableClient() {
    const client = newClient({ elicitation: { form: {}, url: {} }, sampling: {}, roots: {} });
    client.setRequestHandler(types.ElicitRequestSchema, ({ method, params }) =>
        person.answer(method, params.message, params.mode === 'url' ? params.url : params.requestedSchema)
    );
    client.setRequestHandler(types.CreateMessageRequestSchema, ({ method, params }) =>
        person.answer(method, params.messages.at(-1).content.text, params.maxTokens)
    );
    client.setRequestHandler(types.ListRootsRequestSchema, ({ method }) => person.answer(method, 'roots'));
    return client;
}

function newClient(capabilities) {
    const client = new Client({ name: 'official-typescript-1', version: '1' }, { capabilities });
    client.onerror = error => stray.push(String(error));
    return client;
}

async function connected(client, use) {
    const [command, ...args] = target;
    const http = transport === 'http';
    const wire = http
        ? new StreamableHTTPClientTransport(new URL(target[0]))
        : new StdioClientTransport({ command, args });
    const versions = [];
    wire.setProtocolVersion = (set => version => (versions.push(version), set?.call(wire, version)))(
        wire.setProtocolVersion
    );
    await client.connect(wire, options);
    const seen = await use(client);
    client.onerror = undefined; // It reports its own farewell as an error.
    if (http) await wire.terminateSession();
    await client.close();
    return [seen, versions.at(-1)];
}

const stray = []; // Errors that no call reported.
const [able, version] = await connected(ableClient(), client => answerAll(client, plan.able));
const [unable] = await connected(newClient({}), client => answerAll(client, plan.unable));
console.log(JSON.stringify({ version, able, unable, stray }));
