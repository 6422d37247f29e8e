// Talks to the service. Every error becomes an ApiError with a sentence for people.

const TOKEN = "labelgrove-token";
let token = sessionStorage.getItem(TOKEN);
let askForToken = async () => null;
let answers = 0; // how often somebody was asked

export class ApiError extends Error {
  constructor(status, code, sentence, retryAfter = null) {
    super(sentence);
    Object.assign(this, { status, code, sentence, retryAfter });
  }
}

// The model that the page's address names; null: the service's default one.
export const chosenModel = new URLSearchParams(location.search).get("model");

// The address of a route about one model.
export function about(route, model = chosenModel) {
  if (model === null) return `v1/${route}`;
  const base = `v1/models/${encodeURIComponent(model)}`;
  return route === "model" ? base : `${base}/${route}`;
}

// `ask(wrong)` resolves to a token that somebody typed, or to null.
export const onTokenNeeded = (ask) => (askForToken = ask);
export const hasToken = () => token !== null;

export function setToken(value) {
  token = value;
  if (value === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, value);
}

export const get = async (path, given = {}, signal = null) => {
  const query = new URLSearchParams(
    Object.entries(given).filter(([, value]) => value !== null && value !== undefined),
  ).toString();
  return (await ask(query ? `${path}?${query}` : path, { signal })).json();
};

export const post = async (path, body, signal = null) => {
  const headers = { "content-type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
};

// Addresses are relative, so that the page also works behind a proxy that adds a path.
export async function ask(path, options = {}) {
  for (;;) {
    const [sent, before] = [token, answers];
    const headers = {
      ...options.headers,
      ...(sent === null ? {} : { authorization: `Bearer ${sent}` }),
    };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(
        0,
        "unreachable",
        "The service cannot be reached. Nothing is lost; try again when it is back.",
      );
    }
    if (response.ok) return response;
    const problem = await described(response);
    if (problem.status !== 401) throw problem;
    // Somebody may have typed it, or declined to, while this request was under way.
    if (answers === before) {
      setToken(await askForToken(sent !== null));
      answers += 1;
    }
    if (token === null) throw problem;
  }
}

async function described(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Not from the service itself, perhaps from a proxy.
  }
  const detail = (body.detail ?? "").replace(/[.\s]+$/, "");
  const retryAfter = Number(response.headers.get("retry-after")) || null;
  const wait = retryAfter
    ? ` It asks to wait ${retryAfter} ${retryAfter === 1 ? "second" : "seconds"}.`
    : "";
  const sentences = {
    401: "The service needs a token.",
    408: "The request took too long to arrive. Try again, or send less.",
    413: `This is too much for one request: ${detail}. Shorten the text or send fewer.`,
    422: `The service did not accept this: ${detail}.`,
    429: `The service is busy: ${detail || "too many requests"}.${wait}`,
    500: "The service failed on this request; its log has the details.",
    503: `The service cannot answer now: ${detail || "not ready"}.${wait}`,
  };
  const sentence =
    sentences[response.status] ??
    `The service answered ${response.status}: ${detail || "no reason given"}.`;
  return new ApiError(response.status, body.code ?? "unknown", sentence, retryAfter);
}
