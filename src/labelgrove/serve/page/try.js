// The first view: a text or a file of them in, labels out.

import { compare, showAnswer } from "./answer.js";
import { about, post } from "./api.js";
import { createBatch } from "./batch.js";
import {
  announce,
  byId,
  count,
  counted,
  h,
  hideProblem,
  lowest,
  MEANING,
  showProblem,
} from "./dom.js";
import { createFields } from "./fields.js";
import { readFiles } from "./files.js";
import { showKept } from "./kept.js";
import { createPicker } from "./picker.js";

const DRAFT = "labelgrove-draft";
const AGAIN = "labelgrove-again"; // another model is asked the same at once

export function startTry(app) {
  const form = byId("ask");
  const text = byId("text");
  const body = byId("results-body");
  let file = null; // what was dropped, in place of the typed text
  let asking = null;
  const fields = createFields(app.model().fields);

  const inputs = [...byId("typed").querySelectorAll("textarea, input[type=text]")];
  const draft = JSON.parse(sessionStorage.getItem(DRAFT) ?? "{}");
  for (const input of inputs) input.value ||= draft[input.id] ?? ""; // somebody may have typed already
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
    let least = null;
    if (!byId("least").validity.valid)
      throw sentence("Minimum: this is not a number, or no whole per cent.", byId("least"));
    // Probabilities are shown and typed in percent.
    const unit = app.model().score_kind === "probability" ? 100 : 1;
    if (byId("least").value !== "") least = Number(byId("least").value) / unit;
    if (allow.size()) chosen.allow = allow.values();
    if (deny.size()) chosen.deny = deny.values();
    return { chosen, least };
  }

  // Where labels begin to be proposed: the minimum, or what calibration found best.
  function line(least) {
    const { calibration } = app.model();
    const sets = ["macro-F1", "document-F1"].includes(calibration?.report?.target);
    return least ?? (calibration && !sets ? calibration.threshold : null);
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
    let wanted, least, given;
    try {
      ({ chosen: wanted, least } = options());
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
    const kind = app.model().score_kind;
    if (many && least === null) await batch.run(given, wanted, line(null));
    else if (many) await batch.run(given, { ...wanted, threshold: lowest(least, kind) }, null);
    else if (byId("against").value)
      await busily(() => compare(app, body, given[0], wanted, asking.signal), find);
    else await one(given[0], { ...wanted, least }, asking);
  }

  // Runs while the button says that the page is busy; `again` is what its own button does then.
  async function busily(action, again) {
    hideProblem(byId("ask-problem"));
    const button = byId("find");
    const busy = setTimeout(() => button.setAttribute("aria-busy", "true"), 150);
    try {
      await action();
    } catch (error) {
      if (error.name !== "AbortError") showProblem(byId("ask-problem"), error, again);
    } finally {
      clearTimeout(busy);
      button.removeAttribute("aria-busy");
    }
  }

  // `around` has ways back to a table of texts and on to its next one.
  function one(given, { least = null, threshold = least, ...wanted }, control, around = null) {
    const again = () => one(given, { threshold, ...wanted }, new AbortController(), around);
    return busily(
      async () => {
        const request = { texts: [given.document], ...wanted };
        const answer = await post(about("predict"), request, control.signal);
        byId("try-columns").classList.remove("wide");
        const lower = threshold === null ? {} : { threshold: lowest(threshold, answer.score_kind) };
        const asked = { ...request, ...lower };
        const ways = { next: clear, ...around, leaveOut };
        showAnswer(app, body, { given, answer, least: line(threshold), asked, ...ways });
        if (answer.model !== app.model().id) app.reload().catch(() => {});
      },
      around ? again : find,
    );
  }

  const batch = createBatch(app, body, {
    problem: byId("ask-problem"),
    look: (given, wanted, around) => {
      asking?.abort();
      asking = new AbortController();
      return one(given, wanted, asking, around);
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
      ...(fields.isIn(file.columns)
        ? [h("p", { class: "small" }, `Columns: ${file.columns.filter(fields.reads).join(", ")}`)]
        : [h("label", { for: "text-column" }, "Column with the texts"), choose, sample]),
    );
    byId("file").hidden = false;
    byId("typed").hidden = true;
    byId("find").textContent = `Find labels of ${counted(file.rows.length, "text")}`;
  }

  // Room for the next text.
  function clear() {
    for (const input of inputs) input.value = "";
    typed();
    body.replaceChildren(empty);
    scrollTo(0, 0);
    inputs[0].focus();
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
      const values = Object.fromEntries(inputs.map(({ id, value }) => [id, value]));
      sessionStorage.setItem(DRAFT, JSON.stringify(values));
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
  byId("typed").addEventListener("input", typed);
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
  const others = app.models().filter(({ name }) => name !== app.model().name);
  byId("against-choice").hidden = others.length === 0;
  byId("against").replaceChildren(
    new Option("no other model", ""),
    ...others.map(({ name }) => new Option(name, name)),
  );
  const empty = h(
    "div",
    { class: "empty" },
    h("p", {}, "The best labels appear here, each with the words that support it."),
    h("p", { class: "muted small" }, MEANING[app.model().score_kind]),
  );
  body.replaceChildren(empty);
  showKept();
  if (sessionStorage.getItem(AGAIN) && text.value.trim()) find();
  sessionStorage.removeItem(AGAIN);
  return {
    // The next page, of another model, asks for this text at once if there are labels of it.
    askAgain: () => body.querySelector(".ranking, .pair") && sessionStorage.setItem(AGAIN, "yes"),
    only: (label) => allow.add(label.id, label.name),
    never: (label) => deny.add(label.id, label.name),
    masks: () => !byId("which").hidden,
  };
}

const sentence = (words, field) => Object.assign(new Error(words), { sentence: words, field });
const shortened = (given = "") => (given.length > 140 ? `${given.slice(0, 140)}…` : given);
