// The official TypeScript client answers what a server asks. Run by the Node of the wheel.
//
//     node typescript_client.mjs MODE http URL < plan
//     node typescript_client.mjs MODE stdio COMMAND ARGUMENT... < plan
//
// `MODE` is "auto" or "legacy". The plan says what to call and what the user, the model and the client then
// answer. The client's own loop does the rounds; what came of each call, and what was asked for it, is printed
// as one JSON object.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.peers/node/', import.meta.url));
const { Client, ProtocolError, SdkError, SdkErrorCode, StreamableHTTPClientTransport } = require(
    '@modelcontextprotocol/client'
);
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const PATIENCE = 20_000; // Milliseconds for any single request; the whole run takes two seconds.
const [mode, transport, ...target] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(0, 'utf8'));

const options = { timeout: PATIENCE };
const DO = {
    call: (client, { name, arguments: args }) => client.callTool({ name, arguments: args }, options),
    get: (client, { name, arguments: args }) => client.getPrompt({ name, arguments: args }, options),
    read: (client, { uri }) => client.readResource({ uri }, options)
};

// Whoever answers. A question that the plan does not provide for ends the script with a trace.
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
        if (error instanceof ProtocolError) {
            return { error: { code: error.code, message: error.message, data: error.data } };
        }
        if (error instanceof SdkError && error.code === SdkErrorCode.InputRequiredRoundsExceeded) {
            return { gaveUpAfter: error.data.rounds };
        }
        throw error;
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
    client.setRequestHandler('elicitation/create', ({ method, params }) =>
        person.answer(method, params.message, params.mode === 'url' ? params.url : params.requestedSchema)
    );
    client.setRequestHandler('sampling/createMessage', ({ method, params }) =>
        person.answer(method, params.messages.at(-1).content.text, params.maxTokens)
    );
    client.setRequestHandler('roots/list', ({ method }) => person.answer(method, 'roots'));
    return client;
}

function newClient(capabilities) {
    const client = new Client(
        { name: 'official-typescript', version: '1' },
        { capabilities, versionNegotiation: { mode } }
    );
    client.onerror = error => stray.push(String(error));
    return client;
}

async function connected(client, use) {
    const [command, ...args] = target;
    const wire =
        transport === 'http'
            ? new StreamableHTTPClientTransport(new URL(target[0]))
            : new StdioClientTransport({ command, args });
    await client.connect(wire, options);
    const version = client.getNegotiatedProtocolVersion();
    const seen = await use(client);
    // A stream that is still being opened is given up by the client itself.
    client.onerror = error => error.name === 'AbortError' || stray.push(String(error));
    await client.close();
    return [seen, version];
}

const stray = []; // Errors that no call reported.
const [able, version] = await connected(ableClient(), client => answerAll(client, plan.able));
const [unable] = await connected(newClient({}), client => answerAll(client, plan.unable));
console.log(JSON.stringify({ version, able, unable, stray }));
