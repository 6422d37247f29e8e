// The first view: a text or a file of them in, labels out.

import { post } from "./api.js";
import { createBatch } from "./batch.js";
import {
  announce,
  byId,
  count,
  counted,
  h,
  hideProblem,
  MEANING,
  reveal,
  score,
  showProblem,
} from "./dom.js";
import { createFields } from "./fields.js";
import { readFiles } from "./files.js";
import { createPicker } from "./picker.js";
import { createRanking } from "./ranking.js";

const DRAFT = "labelgrove-draft";

export function startTry(app) {
  const form = byId("ask");
  const text = byId("text");
  const body = byId("results-body");
  let file = null; // what was dropped, in place of the typed text
  let asking = null;
  const fields = createFields(app.model().fields);

  text.value ||= sessionStorage.getItem(DRAFT) ?? ""; // somebody may have typed already
  const picked = () => {
    const number = allow.size() + deny.size();
    byId("which-count").hidden = number === 0;
    byId("which-count").textContent = count(number);
  };
  const groups = () => app.model().groups;
  const allow = createPicker(byId("allow"), {
    title: "Only these",
    help: "If you choose any, only these labels come back.",
    groups,
    changed: () => picked(),
  });
  const deny = createPicker(byId("deny"), {
    title: "Never these",
    help: "These labels are always left out.",
    groups,
    changed: () => picked(),
  });
  byId("which").hidden = !(app.model().supports.allow && app.model().supports.deny);

  function options() {
    const k = Number(byId("k").value);
    const most = app.model().limits.max_k;
    if (!Number.isInteger(k) || k < 1 || k > most) {
      throw sentence(`Labels: choose a whole number from 1 to ${count(most)}.`, byId("k"));
    }
    const chosen = { k };
    if (byId("least").validity.badInput)
      throw sentence("Minimum score: this is not a number.", byId("least"));
    // Probabilities are shown and typed in percent.
    const unit = app.model().score_kind === "probability" ? 100 : 1;
    if (byId("least").value !== "") chosen.threshold = Number(byId("least").value) / unit;
    if (allow.size()) chosen.allow = allow.values();
    if (deny.size()) chosen.deny = deny.values();
    return chosen;
  }

  function texts() {
    if (file !== null) {
      const whole = fields.isIn(file.columns);
      const document = (row) =>
        whole ? fields.ofRow(file.columns, row) : (row[file.textColumn] ?? "");
      return file.rows.map((row) => ({
        document: document(row),
        text: fields.words(document(row)),
        id: file.idColumn === null ? null : (row[file.idColumn] ?? null),
      }));
    }
    const document = fields.typed(text.value);
    const typed = fields.words(document);
    if (!typed.trim()) throw sentence("Type or paste a text first, or drop a file.", text);
    if (form.elements.holds.value === "one" || typeof document !== "string")
      return [{ document, text: typed, id: null }];
    return typed
      .split(/\r?\n/)
      .filter((line) => line.trim())
      .map((line) => ({ document: line, text: line, id: null }));
  }

  async function find() {
    hideProblem(byId("ask-problem"));
    let wanted, given;
    try {
      wanted = options();
      given = texts();
    } catch (error) {
      showProblem(byId("ask-problem"), error);
      error.field?.focus();
      return;
    }
    asking?.abort();
    batch.stop();
    asking = new AbortController();
    const many = given.length > 1 || (file !== null && file.rows.length > 1);
    if (many) await batch.run(given, wanted);
    else await one(given[0], wanted, asking);
  }

  async function one(given, wanted, control, back = null) {
    hideProblem(byId("ask-problem"));
    const button = byId("find");
    const busy = setTimeout(() => button.setAttribute("aria-busy", "true"), 150);
    try {
      const answer = await post("v1/predict", { texts: [given.document], ...wanted }, control.signal);
      byId("try-columns").classList.remove("wide");
      const labels = answer.predictions[0];
      const ranking = createRanking(app, {
        given,
        labels,
        kind: answer.score_kind,
        timing: answer.timing,
        leaveOut,
      });
      const lost = body.contains(document.activeElement);
      body.replaceChildren(...(back ? [back()] : []), ...ranking.elements);
      ranking.openFirst();
      reveal(byId("results"));
      if (lost) body.querySelector("button")?.focus({ preventScroll: true });
      announce(
        labels.length
          ? `${counted(labels.length, "label")}. Best: ${labels[0].name}, ${score(labels[0].score, answer.score_kind)}.`
          : "No labels.",
      );
      if (answer.model !== app.model().id) app.reload().catch(() => {});
    } catch (error) {
      const again = back ? () => one(given, wanted, new AbortController(), back) : find;
      if (error.name !== "AbortError") showProblem(byId("ask-problem"), error, again);
    } finally {
      clearTimeout(busy);
      button.removeAttribute("aria-busy");
    }
  }

  const batch = createBatch(app, body, {
    problem: byId("ask-problem"),
    look: (given, wanted, back) => {
      asking?.abort();
      asking = new AbortController();
      return one(given, wanted, asking, back);
    },
  });

  function leaveOut(label) {
    byId("which").open = true;
    deny.add(label.id, label.name);
    return find();
  }

  async function take(files) {
    hideProblem(byId("ask-problem"));
    try {
      const read = await readFiles(files, fields.lists);
      const single = read.rows.length === 1 && /\.txt$/i.test(read.name);
      if (single) {
        drop();
        text.value = read.rows[0][1];
        form.elements.holds.value = "one";
        typed();
        text.focus();
        announce(`${read.name} is in the text field.`);
      } else {
        file = read;
        showFile();
        announce(`${counted(read.rows.length, "text")} from ${read.name}.`);
        byId("find").focus();
      }
    } catch (error) {
      showProblem(byId("ask-problem"), error);
    }
  }

  function showFile() {
    const choose = h("select", {
      id: "text-column",
      onchange: (event) => {
        file.textColumn = Number(event.target.value);
        sample.textContent = shortened(file.rows[0][file.textColumn]);
      },
    });
    file.columns.forEach((name, number) =>
      choose.append(new Option(name, number, false, number === file.textColumn)),
    );
    const sample = h(
      "p",
      { class: "sample muted small" },
      shortened(file.rows[0][file.textColumn]),
    );
    byId("file").replaceChildren(
      h(
        "div",
        { class: "file-head" },
        h(
          "div",
          {},
          h("strong", {}, file.name),
          h("br"),
          h("span", { class: "muted" }, counted(file.rows.length, "text")),
        ),
        h(
          "button",
          {
            type: "button",
            class: "secondary",
            onclick: () => {
              drop();
              text.focus();
            },
          },
          "Remove",
        ),
      ),
      h("label", { for: "text-column" }, "Column with the texts"),
      choose,
      sample,
    );
    byId("file").hidden = false;
    byId("typed").hidden = true;
    byId("find").textContent = `Find labels of ${counted(file.rows.length, "text")}`;
  }

  // The text that was typed before is still there.
  function drop() {
    file = null;
    byId("file").hidden = true;
    byId("typed").hidden = false;
    byId("find").textContent = "Find labels";
  }

  function typed() {
    try {
      sessionStorage.setItem(DRAFT, text.value);
    } catch {
      // A text that is too large for the storage stays in the field only.
    }
    const length = Array.from(text.value).length;
    const most = app.model().limits.max_text_chars;
    byId("text-size").textContent =
      length > most / 2 ? `${count(length)} of ${count(most)} characters` : "";
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    find();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    find();
  });
  text.addEventListener("input", typed);
  byId("choose").addEventListener("click", () => byId("files").click());
  byId("files").addEventListener("change", (event) => {
    const files = [...event.target.files];
    event.target.value = "";
    if (files.length) take(files);
  });
  // A file dropped beside the form must not make the browser leave the page.
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    addEventListener(kind, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      const here = !form.closest("section").hidden;
      form.classList.toggle("dropping", here && (kind === "dragenter" || kind === "dragover"));
      if (kind === "drop" && here) take([...event.dataTransfer.files]);
    });
  }
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || form.closest("section").hidden || byId("token-dialog").open)
      return;
    const open = body.querySelector("[aria-expanded='true']");
    if (open) {
      const inside = open.closest("li").contains(document.activeElement);
      open.click();
      if (inside) open.focus();
    } else if (byId("which").contains(document.activeElement)) {
      byId("which").open = false;
      byId("which").firstElementChild.focus();
    }
  });
  typed();
  byId("find").disabled = false;
  body.replaceChildren(
    h(
      "div",
      { class: "empty" },
      h("p", {}, "The best labels appear here, each with the words that support it."),
      h("p", { class: "muted small" }, MEANING[app.model().score_kind]),
    ),
  );
  return {
    only: (label) => allow.add(label.id, label.name),
    never: (label) => deny.add(label.id, label.name),
    masks: () => !byId("which").hidden,
  };
}

const sentence = (words, field) => Object.assign(new Error(words), { sentence: words, field });
const shortened = (given = "") => (given.length > 140 ? `${given.slice(0, 140)}…` : given);
