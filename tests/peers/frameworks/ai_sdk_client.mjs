// The tools that the AI SDK makes out of a server's, executed as an agent executes them, but without a model.
//
//     node ai_sdk_client.mjs bare|full URL < steps
//
// `steps` is a list of names and arguments. What came of each is printed as one JSON object.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.peers/ai-sdk/', import.meta.url));
const { createMCPClient, ElicitationRequestSchema } = require('@ai-sdk/mcp');

const [mode, url] = process.argv.slice(2);
const capabilities = mode === 'full' ? { elicitation: { form: {} } } : {};
const client = await createMCPClient({ transport: { type: 'http', url }, capabilities });
if (mode === 'full') {
    client.onElicitationRequest(ElicitationRequestSchema, () =>
        ({ action: 'accept', content: { name: 'Mio', nights: 2 } })
    );
}
const tools = await client.tools();
const seen = {};
for (const [name, args] of JSON.parse(readFileSync(0, 'utf8'))) {
    try {
        const result = await tools[name].execute(args, { toolCallId: name, messages: [] });
        seen[name] = { result: result.structuredContent ?? result.content.map(block => block.text) };
    } catch (error) {
        seen[name] = { error: `${error.name}: ${error.message}` };
    }
}
await client.close();
console.log(JSON.stringify(seen));
