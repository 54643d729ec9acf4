// What a page does to call a tool of a server of another origin. `arguments` are the URL and Selenium's callback.
const [url, done] = arguments;
const version = "2026-07-28";
const meta = {
  "io.modelcontextprotocol/protocolVersion": version,
  "io.modelcontextprotocol/clientInfo": { name: "page", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": { elicitation: { form: {} } },
};

async function post(message, headers) {
  const response = await fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      authorization: "Bearer a-token-of-the-page",
      ...headers,
    },
    body: JSON.stringify(message),
  });
  return { response, text: await response.text() };
}

async function call(name, given, more = {}) {
  const params = { name, arguments: given, _meta: meta, ...more };
  const headers = { "mcp-protocol-version": version, "mcp-method": "tools/call", "mcp-name": name };
  if (given.tenant) headers["mcp-param-tenant"] = given.tenant;
  return post({ jsonrpc: "2.0", id: 1, method: "tools/call", params }, headers);
}

async function all() {
  const found = {};
  const asked = JSON.parse((await call("order", { tenant: "eu" })).text).result;
  found.asked = Object.values(asked.inputRequests)[0].params.message;
  const [key] = Object.keys(asked.inputRequests);
  const answers = { [key]: { action: "accept", content: { value: 3 } } };
  const second = await call("order", { tenant: "eu" }, { inputResponses: answers, requestState: asked.requestState });
  found.ordered = JSON.parse(second.text).result.content[0].text;
  found.stream = (await call("slowly", {})).text.includes("there");
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "page", version: "1" } };
  const opened = await post({ jsonrpc: "2.0", id: 1, method: "initialize", params }, {});
  found.session = opened.response.headers.get("mcp-session-id") !== null;
  const limited = await call("limited", {});
  found.limited = [limited.response.status, limited.response.headers.get("retry-after")];
  return found;
}

all().then(done, (error) => done({ error: String(error) }));
