// How the site ranks what a search finds: pages by their names, then headings, then the rest; what
// changed, last. The other numbers are Sphinx's own.
const words = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().split(/\W+/);
// Without their last letters: who looks for "calibrate" also wants "Calibration".
const stems = words.filter(Boolean).map((word) => word.slice(0, Math.max(4, word.length - 2)));

var Scorer = {
  score: ([page, title, _anchor, _description, score, _file, kind]) => {
    if (page === "CHANGELOG") return score - 1000;
    const name = title.split(" > ").pop().toLowerCase();
    if (kind === "object" || !stems.every((stem) => name.includes(stem))) return score;
    return score + (title.includes(" > ") ? 200 : page.startsWith("api/") ? 300 : 400);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
