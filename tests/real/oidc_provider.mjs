// An identity provider: oidc-provider (argv[2], its entry point), with argv[3] as the path of its issuer. Prints the issuer.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const { Provider } = await import(pathToFileURL(process.argv[2]));
const path = process.argv[3] ?? "";
const server = createServer();

server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}${path}`;
  const provider = new Provider(issuer, {
    features: {
      registration: { enabled: true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({ scope: "", audience: "our-hub", accessTokenFormat: "jwt" }),
      },
    },
  });
  const answer = provider.callback();
  server.on("request", (request, response) => {
    request.originalUrl = request.url;
    request.url = request.url.slice(path.length);
    answer(request, response);
  });
  console.log(issuer);
});
