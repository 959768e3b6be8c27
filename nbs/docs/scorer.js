// What the search shows first: a heading or an entry of the index that is what was typed, then the pages to look things up.
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) =>
    score + (kind === "title" || kind === "index" ? 20 : 0)
          + (docname === "called" ? 8 : docname.startsWith("reference/") || docname === "nbs/glossary" ? 5 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
