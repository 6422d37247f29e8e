// The third view: facts about the model; times, settings and the tree are for experts.

import { ask, hasToken } from "./api.js";
import { byId, count, counted, h, MEANING, score, seconds } from "./dom.js";

export function showModel(model) {
  byId("model-lede").textContent =
    `${model.method}, ${counted(model.labels, "label")}, id ${model.id}.`;
  byId("model-facts").replaceChildren(
    ...[
      facts(model),
      heldOut(model),
      calibration(model),
      report(model),
      expert(model),
    ].filter(Boolean),
  );
}

function facts(model) {
  const rows = [
    ["Name", model.name],
    ["Method", model.method],
    ["Labels", count(model.labels)],
    [
      "Groups of labels",
      model.groups.length
        ? model.groups.slice(0, 12).join(", ") + (model.groups.length > 12 ? " …" : "")
        : null,
    ],
    [
      "Training documents",
      model.training_documents === null ? null : count(model.training_documents),
    ],
    ["Texts", model.fields === null ? null : model.fields.texts.join(", ")],
    ["Catalogue fields", model.fields === null ? null : model.fields.fields.join(", ") || "none"],
    ["Scores", MEANING[model.score_kind]],
    ["Trained", when(model.created)],
    ["Loaded", when(model.loaded)],
  ];
  return card("Facts", list(rows.filter(([, value]) => value !== null)));
}

const when = (moment) =>
  moment === null
    ? null
    : new Date(moment).toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });

const list = (rows) =>
  h(
    "dl",
    { class: "facts" },
    ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );

function heldOut(model) {
  const given = Object.keys(model.dev).length > 0;
  const dev = given ? [["on dev", model.dev]] : [];
  const runs = [...dev, ...Object.entries(model.held_out)];
  if (!runs.length) {
    return card(
      "Quality",
      h(
        "p",
        {},
        "Training held out no documents, so the model has no measurements of its own. ",
        h("code", {}, "labelgrove evaluate"),
        " measures it on documents with known labels.",
      ),
    );
  }
  const metrics = [...new Set(runs.flatMap(([, measured]) => Object.keys(measured)))];
  const best = Object.fromEntries(
    metrics.map((metric) => [metric, Math.max(...runs.map(([, m]) => m[metric] ?? -1))]),
  );
  const cells = (measured) =>
    metrics.map((metric) => {
      const value = measured[metric];
      const shown = value === undefined ? "" : (100 * value).toFixed(1);
      return h(
        "td",
        {},
        !given && value !== undefined && value === best[metric] && runs.length > 1
          ? h("strong", {}, shown)
          : shown,
      );
    });
  const table = h(
    "table",
    { class: "metrics" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "per cent"),
        ...metrics.map((metric) => h("th", { scope: "col" }, metric)),
      ),
    ),
    h(
      "tbody",
      {},
      ...runs.map(([name, measured]) =>
        h("tr", {}, h("th", { scope: "row" }, name), ...cells(measured)),
      ),
    ),
  );
  return card(
    "Quality",
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Metrics" }, table),
    behind(model)
      ? h(
          "p",
          { class: "notice" },
          "On these documents the linear method, which is much faster, is better.",
        )
      : null,
    h(
      "p",
      { class: "muted small" },
      given ? "The dev documents were given to training for measuring. " : "",
      runs.length > dev.length
        ? "Other rows are measured on documents that training held out and used to choose settings; results on new documents may be slightly worse."
        : "",
    ),
  );
}

function behind({ method, held_out: measured }) {
  const metric = "P@1";
  return method !== "linear" && measured.linear?.[metric] > measured[method]?.[metric];
}

function calibration(model) {
  if (model.calibration === null) return null;
  const { threshold, report: measured } = model.calibration;
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  const { documents, before, after, target, at_threshold: there } = measured ?? {};
  const sets = ["macro-F1", "document-F1"].includes(target);
  const rows = [sets ? ["Sets for the best", target] : ["Best threshold", score(threshold, "probability")]];
  if (there)
    rows.push(
      ["Precision there", percent(there.precision)],
      ["Recall there", percent(there.recall)],
    );
  if (after)
    rows.push([
      "Mean error",
      `${percent(after.ece)}, without calibration ${percent(before.ece)}`,
    ]);
  if (documents) rows.push(["Measured on", counted(documents, "document")]);
  return card("Calibration", list(rows), after ? reliability(after) : null);
}

// Probabilities beside the share of right labels; close to zero there is little to see.
function reliability({ claimed, true: right }) {
  const bins = claimed
    .map((said, number) => [said, right[number]])
    .filter(([said]) => said >= 0.05)
    .slice(-7);
  if (bins.length < 2) return null;
  const cells = (name, values) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      ...values.map((value) => h("td", {}, score(value, "probability"))),
    );
  const table = h(
    "table",
    { class: "metrics" },
    h(
      "tbody",
      {},
      cells(
        "given",
        bins.map(([said]) => said),
      ),
      cells(
        "right",
        bins.map(([, was]) => was),
      ),
    ),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Probabilities and outcomes" },
    table,
  );
}

function times(model) {
  const stages = Object.entries(model.training_seconds);
  if (!stages.length) return null;
  const longest = Math.max(...stages.map(([, value]) => value), 1e-9);
  const total = stages.reduce((sum, [, value]) => sum + value, 0);
  const rows = stages.map(([name, value]) => {
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", (value / longest).toFixed(3));
    return h(
      "li",
      {},
      h("span", { class: "word" }, name),
      bar,
      h("span", { class: "number" }, seconds(value)),
    );
  });
  return h("details", {}, h("summary", {}, `Training time: ${seconds(total)}`), h("ul", { class: "words" }, ...rows));
}

function report(model) {
  if (!model.report) return null;
  const address = `report/${encodeURIComponent(model.name)}`;
  const words = "Curves, tables and the most wrong documents of an evaluation.";
  if (!hasToken())
    return card(
      "Report",
      h("p", {}, words),
      h("p", {}, h("a", { href: address, target: "_blank", rel: "noopener" }, "Open the report")),
    );
  // A link cannot carry the token; a download can.
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const save = async () => {
    try {
      const content = URL.createObjectURL(await (await ask(address)).blob());
      h("a", { href: content, download: "report.html" }).click();
      setTimeout(() => URL.revokeObjectURL(content), 10_000);
    } catch (error) {
      problem.textContent = error.sentence ?? error.message;
      problem.hidden = false;
    }
  };
  return card(
    "Report",
    h("p", {}, words),
    h("button", { type: "button", class: "secondary", onclick: save }, "Download the report"),
    problem,
  );
}

function expert(model) {
  const fold = (name, inside) => h("details", {}, h("summary", {}, name), inside);
  const shown = (value) => h("pre", { tabindex: "0" }, JSON.stringify(value, null, 2));
  return card(
    "For experts",
    model.trees.length ? h("p", {}, h("a", { href: "#/tree" }, "The label tree")) : null,
    times(model),
    fold("Parameters", shown(model.params)),
    fold(
      "Limits of the service",
      list(Object.entries(model.limits).map(([name, value]) => [name, count(value)])),
    ),
    fold("Versions", list(Object.entries(model.versions))),
    h(
      "p",
      { class: "muted small" },
      "For programs: ",
      // A link cannot carry the token.
      hasToken() ? h("code", {}, "GET openapi.json") : h("a", { href: "openapi.json" }, "openapi.json"),
      " describes all routes.",
    ),
  );
}

const card = (heading, ...inside) =>
  h("section", { class: "card fact" }, h("h2", {}, heading), ...inside.filter(Boolean));
