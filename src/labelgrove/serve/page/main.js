// Starts the page: the models and the views.

import { about, get, hasToken } from "./api.js";
import { byId, count, counted, hideProblem, showProblem } from "./dom.js";
import { startFrame } from "./frame.js";
import { startLabels } from "./labels.js";
import { showModel } from "./model.js";
import { startTree } from "./tree.js";
import { startTry } from "./try.js";

const TITLES = { try: "Try", labels: "Labels", tree: "Label tree", model: "Model" };
const views = {};
let model = null;
let models = [];

async function start() {
  hideProblem(byId("page-problem"));
  try {
    await loadModel();
  } catch (error) {
    const elsewhere = error.code === "no-model" ? () => location.assign("./") : start;
    showProblem(byId("page-problem"), error, elsewhere);
    return;
  }
  byId("forget-token").hidden = !hasToken();
  if (!views.try) {
    const app = { model: () => model, models: () => models, reload: loadModel };
    views.try = startTry(app);
    views.labels = startLabels(app, views.try);
    views.tree = startTree(app, views.try);
    views.model = { show: () => showModel(model) };
  }
  show(false);
}

async function loadModel() {
  const [facts, listed] = await Promise.all([get(about("model")), get("v1/models")]);
  model = facts;
  models = listed.models;
  offerModels(listed.default);
  const documents = model.training_documents;
  const learnt = documents === null ? "" : ` and was trained on ${counted(documents, "document")}`;
  byId("summary").textContent =
    `The ${model.method} model knows ${counted(model.labels, "label")}${learnt}.`;
  byId("keeping").textContent = model.feedback
    ? "Texts go to this service and nowhere else. It keeps those that you send with your labels."
    : "Texts go to this service and nowhere else. It does not keep them.";
  byId("version").textContent = `labelgrove ${model.versions.labelgrove ?? ""}, model ${model.id}.`;
  byId("k").max = model.limits.max_k;
  byId("k").value = Math.min(Number(byId("k").value) || 10, model.limits.max_k, model.labels);
  const chances = model.score_kind === "probability";
  byId("least-label").textContent = chances ? "Minimum, in %" : "Minimum score";
  byId("least").step = chances ? 1 : "any"; // as they are shown
  byId("least").placeholder = model.calibration
    ? `${Math.round(100 * model.calibration.threshold)} is best`
    : "none";
  byId("labels-lede").textContent = `All ${count(model.labels)} labels, the most frequent first.`;
}

// The model is part of the address, so that it can be linked to.
function offerModels(usual) {
  const select = byId("which-model");
  byId("model-choice").hidden = models.length < 2;
  select.replaceChildren(
    ...models.map(({ name }) => new Option(name, name, false, name === model.name)),
  );
  select.onchange = () => {
    const address = new URL(location.href);
    if (select.value === usual) address.searchParams.delete("model");
    else address.searchParams.set("model", select.value);
    views.try?.askAgain();
    location.assign(address);
  };
}

function show(moved = true) {
  const [, name = "try", query = ""] = /^#\/(\w+)(?:\?(.*))?$/.exec(location.hash) ?? [];
  const wanted = name in TITLES ? name : "try";
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = section.dataset.view !== wanted;
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === (wanted === "tree" ? "model" : wanted)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[wanted]} · labelgrove`;
  if (model === null) return;
  if (moved) {
    byId(`${wanted}-heading`).focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  views[wanted].show?.(new URLSearchParams(query));
}

// The browser's own submit would load the page again and lose the text.
byId("ask").addEventListener("submit", (event) => event.preventDefault());
startFrame();
addEventListener("hashchange", () => show());
start();
