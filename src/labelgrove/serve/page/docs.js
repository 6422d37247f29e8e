// The page about the API, made of the service's own openapi.json.

import { get, hasToken } from "./api.js";
import { base, copyButton, curl } from "./curl.js";
import { byId, count, h, hideProblem, showProblem } from "./dom.js";
import { startFrame } from "./frame.js";

let api = null;
let label = "LABEL";

async function start() {
  hideProblem(byId("page-problem"));
  try {
    api = await get("openapi.json");
    // An example with a label that the model has can be tried as it is.
    label = (await get("v1/labels", { limit: 1 })).labels[0]?.id ?? label;
  } catch (error) {
    showProblem(byId("page-problem"), error, start);
    return;
  }
  byId("forget-token").hidden = !hasToken();
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const name = operation.tags?.[0] ?? "the service";
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(route(path, method, operation));
    }
  }
  byId("routes").replaceChildren(
    ...[...groups].flatMap(([name, routes]) => [h("h2", {}, upper(name)), ...routes]),
  );
  byId("python").hidden = false;
  const token = hasToken() ? ', token=os.environ["LABELGROVE_TOKEN"]' : "";
  byId("python-example").textContent = [
    ...(token ? ["import os"] : []),
    "import labelgrove",
    "",
    `client = labelgrove.Client("${base().replace(/\/$/, "")}"${token})`,
    'print(client.predict(["a chopping board of oak"], k=3).names())',
  ].join("\n");
}

const upper = (name) => name[0].toUpperCase() + name.slice(1);

function route(path, method, operation) {
  const body = bodyOf(operation);
  const heading = `${method}-${path.replace(/\W+/g, "-")}`;
  return h(
    "section",
    { class: "card route", "aria-labelledby": heading },
    h(
      "h3",
      { id: heading },
      h("span", { class: "method" }, method.toUpperCase()),
      h("code", {}, path),
    ),
    h("p", {}, operation.description ?? operation.summary),
    example(path, operation, body),
    fields("Parameters", (operation.parameters ?? []).map(parameter)),
    body === null ? null : fields("Body", properties(body)),
    h("p", { class: "muted small" }, "Answers:"),
    h(
      "ul",
      { class: "statuses small" },
      ...Object.entries(operation.responses).map(([status, { description }]) =>
        h("li", {}, h("code", {}, status), ` ${description}`),
      ),
    ),
  );
}

function bodyOf(operation) {
  const content = operation.requestBody?.content?.["application/json"];
  return content ? resolved(content.schema) : null;
}

function example(path, operation, body) {
  const parameters = operation.parameters ?? [];
  const filled = parameters
    .filter((one) => one.in === "path")
    .reduce((whole, { name, schema }) => whole.replace(`{${name}}`, schema.enum?.[0] ?? name), path);
  const query = new URLSearchParams(
    parameters
      .filter((one) => one.in === "query" && (one.schema.examples ?? one.examples))
      .map((one) => [one.name, (one.schema.examples ?? one.examples)[0]]),
  ).toString();
  const given =
    body?.example && JSON.parse(JSON.stringify(body.example).replaceAll('"LABEL"', JSON.stringify(label)));
  const command = curl(filled.slice(1) + (query && `?${query}`), given);
  return h(
    "div",
    { class: "example" },
    h("pre", { tabindex: "0" }, command),
    copyButton("Copy", () => command),
  );
}

const resolved = (schema) =>
  schema.$ref ? schema.$ref.slice(2).split("/").reduce((at, step) => at[step], api) : schema;

const parameter = ({ name, required, description, schema }) => [
  name,
  typeOf(schema),
  required,
  schema.default,
  description ?? schema.description,
];

const properties = (schema) =>
  Object.entries(schema.properties).map(([name, field]) => [
    name,
    typeOf(field),
    schema.required?.includes(name),
    field.default,
    field.description,
  ]);

function typeOf(schema) {
  const one = resolved(schema);
  const kinds = one.anyOf ?? one.oneOf;
  if (kinds) return [...new Set(kinds.map(typeOf))].filter((kind) => kind !== "null").join(" or ");
  if (one.const !== undefined) return JSON.stringify(one.const);
  if (one.type === "array") return `list${atMost(one.maxItems)}: ${typeOf(one.items)}`;
  if (one.type === "string") return `text${atMost(one.maxLength, " characters")}`;
  if (one.maximum !== undefined) return `${one.type} from ${one.minimum} to ${one.maximum}`;
  return one.type ?? "anything";
}

const atMost = (limit, unit = "") =>
  limit === undefined ? "" : ` of at most ${count(limit)}${unit}`;

function fields(name, rows) {
  if (!rows.length) return null;
  return h(
    "table",
    { class: "fields" },
    h("caption", {}, name),
    h(
      "tbody",
      {},
      ...rows.map(([field, type, required, otherwise, description]) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, h("code", {}, field)),
          h(
            "td",
            { class: "muted" },
            type,
            required
              ? ", required"
              : otherwise === undefined || otherwise === null
                ? ""
                : `; ${JSON.stringify(otherwise)} if left out`,
          ),
          h("td", {}, description ?? ""),
        ),
      ),
    ),
  );
}

startFrame();
start();
