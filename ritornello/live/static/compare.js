// Several runs: curves over seeds, and the table of `python -m ritornello.analysis compare`.

import { ask, address, resting } from "./api.js";
import { look, Panel, resampled } from "./charts.js";
import { choice, command, el, put, short, table } from "./dom.js";

const GRID = 400;
const FEW_SEEDS = 5;  // up to so many are drawn one by one, as in the figures of the project
let axis = "steps";

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
  const over = choice("axis", "Curves over", [["steps", "by agent steps"], ["minutes", "by minutes"]], axis, (value) => { axis = value; draw(); });
  put(main, el("div.page", {}, el("h1", {}, runs.length === 1 ? "One run" : `${runs.length} runs compared`),
    el("form.tools", { onsubmit: (event) => {
      event.preventDefault();
      const wanted = steps.value.replace(/[\s_,]/g, "");
      go(address("/compare", wish({ at_steps: /^\d+$/.test(wanted) && Number(wanted) > 0 ? wanted : null })));
    } }, group, over, el("label", { for: "at-steps" }, "Scores at agent steps"), steps, el("button", { type: "submit" }, "Apply")),
    el("details", {}, el("summary", {}, "the runs"), el("ul.files", {}, runs.map((run) => el("li", {},
      el("a", { href: address("/run", { run }) }, run), " ",
      runs.length > 1 ? el("button.quiet.small", { type: "button", "aria-label": `Leave out ${run}`, onclick: () => go(address("/compare", wish({ run: runs.filter((each) => each !== run) }))) }, "leave out") : null)))),
    state, body));

  let answer = null, ended = false;
  const panels = [];

  function curvesOf(game) {
    const ofSeeds = game.configurations.flatMap((each) => each.seeds);
    const ends = ofSeeds.flatMap((seed) => [seed[axis][0], seed[axis][seed[axis].length - 1]]);
    const low = Math.min(...ends), high = Math.max(...ends);
    const grid = Array.from({ length: GRID }, (_, index) => low + (high - low) * index / (GRID - 1));
    const series = [];
    game.configurations.forEach((each, index) => {
      const over = axis === "steps" ? each.by_steps : each.by_minutes;
      const count = each.seeds.length;
      if (!over || count <= FEW_SEEDS) {
        for (const seed of each.seeds) {
          series.push({ label: each.label, index, thin: count > 1 && !!over, values: resampled(grid, seed[axis], seed.mean) });
        }
      }
      if (over) {
        series.push({ label: `${each.label} (${count} seeds)`, index, values: resampled(grid, over.x, over.mean),
          band: [resampled(grid, over.x, over.low), resampled(grid, over.x, over.high)] });
      }
    });
    return [grid, series];
  }

  function draw() {
    if (!answer) return;
    answer.games.forEach((game, number) => panels[number].show(...curvesOf(game), axis));
  }

  function build() {
    const many = answer.games.some((game) => game.configurations.some((each) => each.seeds.length > 1));
    put(body, answer.games.map((game) => {
      const panel = new Panel({ title: game.env, unit: "mean return of 100 games, not clipped", height: 320, rank: 2 });
      panels.push(panel);
      return el("section.page-part", {}, el("div.big", {}, panel.node),
        table(`Scores in ${game.env}`, game.table.headings, game.table.rows.map((cells, row) => [swatched(cells[0], row), ...cells.slice(1)]),
          game.table.headings.map((_, index) => index).slice(1)),
        game.improvement ? improvement(game) : null);
    }),
    el("p.muted", {}, "Score: mean raw return of the last 100 games of training. ",
      many ? "Over the seeds of a configuration: interquartile mean, and its 95 % interval by stratified bootstrap (the band). Thin lines: each seed. " : "",
      `Scores are taken at ${answer.games.map((game) => `${short(game.at_steps)} agent steps`).join(", ")}.`),
    answer.notes.length ? el("details", {}, el("summary", {}, `${answer.notes.length} left out`), el("ul", {}, answer.notes.map((note) => el("li", {}, note)))) : null,
    el("div.more", {},
      el("a.button", { href: address("/api/compare.png", wish({})), download: "comparison.png" }, "Picture (PNG)"),
      el("a.button", { href: address("/api/compare.csv", wish({})), download: "comparison.csv" }, "Curves (CSV)")),
    el("h2", {}, "The command that makes the same"), command(answer.command));
    draw();
  }

  ask("/api/compare", wish({})).then((got) => {
    if (ended) return;
    answer = got;
    put(state);
    build();
  }).catch((problem) => {
    if (ended) return;
    const same = /same seed|the same/.test(problem.message) && !apart;
    put(state, el("span.problem", { role: "alert" }, problem.message),
      same ? el("button", { type: "button", onclick: () => go(address("/compare", wish({ apart: "1" }))) }, "Show each run for itself") : null);
  });
  return () => { ended = true; };
}

/** How often each configuration beats each other one. */
function improvement(game) {
  const { headings, rows } = game.improvement;
  return [el("p.muted", {}, "Probability of improvement: how often a run of the row scores higher than one of the column."),
    table(`Probability of improvement in ${game.env}`, headings, rows, headings.map((_, index) => index).slice(1))];
}

/** The name of a configuration beside the colour of its curve. */
function swatched(label, index) {
  const { colour, dash } = look(index);
  const line = el("i.swatch");
  line.style.borderTopColor = colour;
  line.style.borderTopStyle = dash.length ? "dashed" : "solid";
  return el("span", {}, line, label);
}
