// Several runs: the figure and the tables of `python -m ritornello.analysis compare`.

import { ask, address, resting } from "./api.js";
import { choice, el, put, short, table } from "./dom.js";

export function showComparison({ main, crumbs, query, go }) {
  const runs = query.getAll("run");
  const apart = query.get("apart") === "1", atSteps = query.get("at_steps") || "";
  document.title = "Comparison";
  put(crumbs, el("a", { href: "/" }, "Runs"), el("span", { "aria-hidden": "true" }, "/"), el("strong", {}, "Comparison"));
  const wish = (changes) => ({ run: runs, ...(apart ? { apart: "1" } : {}), ...(atSteps ? { at_steps: atSteps } : {}), ...changes });
  resting();
  const body = el("div.page-part"), state = el("p.muted", { role: "status" }, "Comparing ...");
  const steps = el("input", { id: "at-steps", inputmode: "numeric", value: atSteps, size: 10, placeholder: "shortest run" });
  const group = choice("group", "Group", [["0", "seeds together"], ["1", "each run"]], apart ? "1" : "0",
    (value) => go(address("/compare", wish({ apart: value === "1" ? "1" : null }))));
  put(main, el("div.page", {}, el("h1", {}, runs.length === 1 ? "One run" : `${runs.length} runs compared`),
    el("form.tools", { onsubmit: (event) => {
      event.preventDefault();
      const wanted = steps.value.replace(/[\s_,]/g, "");
      go(address("/compare", wish({ at_steps: /^\d+$/.test(wanted) && Number(wanted) > 0 ? wanted : null })));
    } }, group, el("label", { for: "at-steps" }, "Scores at agent steps"), steps, el("button", { type: "submit" }, "Apply")),
    el("ul.files", {}, runs.map((run) => el("li", {}, el("a", { href: address("/run", { run }) }, run)))), state, body));

  let ended = false;
  ask("/api/compare", wish({})).then(({ games, notes, command }) => {
    if (ended) return;
    put(state);
    put(body, el("img.figure", { src: address("/api/compare.png", wish({})), alt: "Learning curves of these runs" }),
      games.map((game) => [el("h2", {}, `${game.env}, at ${short(game.at_steps)} agent steps`), tableOf(`Scores in ${game.env}`, game.table),
        game.improvement ? tableOf("How often a run of the row scores higher than one of the column", game.improvement) : null]).flat(),
      notes.length ? el("details", {}, el("summary", {}, `${notes.length} left out`), el("ul", {}, notes.map((note) => el("li", {}, note)))) : null,
      el("h2", {}, "The command that makes the same"), el("pre.log", {}, command));
  }).catch((problem) => {
    if (!ended) put(state, el("span.problem", { role: "alert" }, problem.message));
  });
  return () => { ended = true; };
}

function tableOf(caption, { headings, rows }) {
  return table(caption, headings, rows, headings.map((_, index) => index).slice(1));
}
