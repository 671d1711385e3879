// An authorization server for MCP servers: oidc-provider (argv[2], its entry point). argv[3] is JSON: `registration`,
// `documents` (CIMD), `clients`, `rotation` ("always" or "never"), `lifetime` (seconds of an access token), `scopes`.
// Prints its issuer. Beside it: /revoke-all ends all grants, /counts says how often tokens were given, by grant.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const { Provider } = await import(pathToFileURL(process.argv[2]));
const options = JSON.parse(process.argv[3] ?? "{}");
const server = createServer();

server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const counts = {};
  const provider = new Provider(issuer, {
    // The documents of clients (CIMD) are told by the test, and fetched from nowhere.
    fetch: async (url) => Response.json({ ...options.document, client_id: String(url) }),
    clients: options.clients ?? [],
    scopes: ["openid", "offline_access", ...(options.scopes ?? [])],
    clientAuthMethods: ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
    rotateRefreshToken: () => (options.rotation ?? "always") === "always",
    issueRefreshToken: async (ctx, client, code) => client.grantTypeAllowed("refresh_token"),
    ttl: { AccessToken: () => options.lifetime ?? 3600, ClientCredentials: () => options.lifetime ?? 3600, Grant: 86400 * 60, RefreshToken: 86400 * 60, Session: 86400, Interaction: 600 },
    features: {
      registration: { enabled: options.registration ?? false },
      ...(options.documents ? { clientIdMetadataDocument: { enabled: true, ack: "draft-02" } } : {}),
      clientCredentials: { enabled: true },
      revocation: { enabled: true },
      introspection: { enabled: true, allowedPolicy: () => true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: (options.scopes ?? []).join(" "),
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: options.lifetime ?? 3600,
        }),
      },
    },
  });
  provider.on("grant.success", (ctx) => {
    const kind = ctx.oidc.params.grant_type;
    counts[kind] = (counts[kind] ?? 0) + 1;
  });
  provider.on("grant.error", (ctx, error) => {
    const kind = `${ctx.oidc.params?.grant_type} ${error.error}`;
    counts[kind] = (counts[kind] ?? 0) + 1;
    if (options.debug) console.error(error);
  });
  provider.on("server_error", (ctx, error) => console.error(error));
  provider.on("authorization.error", (ctx, error) => { if (options.debug) console.error(error); });
  const answer = provider.callback();
  server.on("request", (request, response) => {
    if (request.url === "/counts") return response.end(JSON.stringify(counts));
    answer(request, response);
  });
  console.log(issuer);
});
