// The page: which of its three views is shown follows from the address.

import { ask, mayPost } from "./api.js";
import { redrawAll, removeAll, setPalette } from "./charts.js";
import { el, put } from "./dom.js";
import { showComparison } from "./compare.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";

const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
const VIEWS = { "/": showRuns, "/run": showRun, "/compare": showComparison };
let leave = () => {};

/** Go to another address without loading the page again. */
function go(address) {
  history.pushState(null, "", address);
  show(true);
}

async function show(isNew) {
  leave();
  removeAll();
  const session = await about;
  const here = new URL(location.href);
  const view = VIEWS[here.pathname] || showRuns;
  leave = view({ main, crumbs, session, query: here.searchParams, go }) || (() => {});
  if (isNew) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });  // so that a screen reader begins to read here
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (link.origin !== location.origin || !VIEWS[link.pathname] || link.hash) return;
  event.preventDefault();
  go(link.href);
});
addEventListener("popstate", () => show(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

const about = ask("/api/session").then((session) => {
  setPalette(session.colours);
  mayPost(session.post);
  return session;
});
about.catch((problem) => put(main, el("p.problem", { role: "alert" }, problem.message)));
show(false);
