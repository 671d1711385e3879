// An authorization server for MCP servers: oidc-provider (argv[2], its entry point). argv[3] is JSON: `registration`,
// `documents` (CIMD), `clients`, `rotation` ("always" or "never"), `lifetime` (seconds of an access token), `scopes`.
// `{digest}` in it is that of the issuer, as it is in redirect addresses. `exchange` adds token exchange (RFC 8693), which oidc-provider leaves to its users.
// Prints its issuer. Beside it: /revoke-all ends all grants, /counts says how often tokens were given, by grant.
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { Provider, errors } = await import(pathToFileURL(process.argv[2]));
const { createRemoteJWKSet, jwtVerify } = await import(pathToFileURL(createRequire(process.argv[2]).resolve("jose")));
const server = createServer();

server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const digest = createHash("sha256").update(issuer).digest("hex").slice(0, 32);
  const options = JSON.parse((process.argv[3] ?? "{}").replaceAll("{digest}", digest));
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
  if (options.exchange) {
    // Its own tokens for its clients' audience `hub` become such for one of the resources; all else of it is the library's.
    const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
    const wanted = ["subject_token", "subject_token_type", "requested_token_type", "resource", "scope", "audience"];
    provider.registerGrantType("urn:ietf:params:oauth:grant-type:token-exchange", async (ctx) => {
      const { client, params } = ctx.oidc;
      const known = { issuer, audience: options.exchange };
      const subject = await jwtVerify(params.subject_token, keys, known).catch(() => { throw new errors.InvalidGrant("odd subject"); });
      if (!params.resource?.endsWith("/mcp")) throw new errors.InvalidTarget();
      const token = new provider.AccessToken({ client, accountId: subject.payload.sub, gty: "token-exchange", scope: params.scope });
      const about = { scope: "", audience: params.resource, accessTokenFormat: "jwt", accessTokenTTL: options.lifetime ?? 3600 };
      token.resourceServer = new provider.ResourceServer(params.resource, about);
      const value = await token.save();
      ctx.body = { access_token: value, issued_token_type: params.requested_token_type, token_type: "Bearer", expires_in: token.expiration };
    }, wanted);
  }
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
