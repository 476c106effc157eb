// The parts of a run's page beside its curves. Each returns elements, or null where nothing is known.

import { address } from "./api.js";
import { ago, bar, duration, el, percent, short, table } from "./dom.js";

export function findingsOf(about) {
  return [el("ul.findings", {}, about.findings.slice(0, 20).map((found) => el("li", {},
    el("p", {}, el("strong", {}, found.name ?? "finding"), " ", found.message ?? "",
      el("span.muted", {}, found.agent_steps !== null ? ` at ${short(found.agent_steps)} agent steps` : "")),
    found.advice ? el("p.advice", {}, String(found.advice)) : null)))];
}

export function filmsOf(about, run) {
  const newest = about.films[0];
  if (!newest) return null;
  const source = address("/api/file", { run, name: newest.name });
  const player = newest.name.endsWith(".mp4") || newest.name.endsWith(".webm")
    ? el("video", { src: source, controls: true, muted: true, loop: true, playsinline: true, preload: "metadata", "aria-label": `Film ${newest.name}` })
    : el("img", { src: source, alt: `Film ${newest.name}` });
  const others = about.films.slice(1, 12);
  return [player, el("p.muted", {}, newest.name),
    others.length ? el("details", {}, el("summary", {}, `${about.films.length - 1} earlier`),
      el("ul.files", {}, others.map((film) => el("li", {}, el("a", { href: address("/api/file", { run, name: film.name }) }, film.name))))) : null];
}

export function evaluationsOf(about) {
  const shown = about.evaluations.slice(0, 12);
  if (!shown.length) return null;
  const number = (text) => (text !== "" && Number.isFinite(Number(text)) ? short(Number(text)) : text);
  const headings = ["agent steps", "game", "policy", "games", "mean", "± error", "min", "max"];
  const error = (row) => row.standard_error ?? row["standard error"] ?? "";
  return [table("Evaluations, the newest first", headings, shown.map((row) => [
    number(row.agent_steps), row.game, row.policy, number(row.games), el("strong", {}, number(row.mean ?? "")),
    number(error(row)), number(row.min ?? ""), number(row.max ?? "")]), [0, 3, 4, 5, 6, 7])];
}

export function buffersOf(about) {
  const said = Array.isArray(about.status.buffers) ? about.status.buffers : [];
  if (!said.length) return null;
  return [el("ul.buffers", {}, said.filter((each) => each && typeof each === "object").map((buffer) => {
    const of = (metric) => about.newest[`replay/${buffer.name}/${metric}`];
    const fill = Number.isFinite(buffer.items / buffer.capacity) ? buffer.items / buffer.capacity : of("fill");
    const facts = [
      Number.isFinite(buffer.items) ? `${short(buffer.items)} of ${short(buffer.capacity)} unrolls` : percent(fill) + " full",
      of("mean_age_updates") !== undefined ? `mean age ${short(of("mean_age_updates"))} updates` : "",
      of("kl_behaviour_target") !== undefined ? `distance from the policy ${short(of("kl_behaviour_target"))} nats` : "",
    ].filter(Boolean).join(" · ");
    return el("li", {}, el("p", {}, el("strong", {}, String(buffer.name))),
      bar(fill, `${buffer.name} is ${percent(fill)} full`), el("p.muted.small", {}, facts));
  }))];
}

export function workersOf(about) {
  const workers = Array.isArray(about.status.workers) ? about.status.workers.filter((each) => each && typeof each === "object") : [];
  if (!workers.length) return null;
  const facts = [...workers, ...(about.status.server ? [{ ...about.status.server, number: "server" }] : [])];
  return [table("Workers", ["worker", "does", "silent", "unrolls", "life", "process"], facts.map((worker) => [
    String(worker.number), worker.doing === undefined ? "–" : String(worker.doing),
    Number.isFinite(worker.silent_s) ? duration(worker.silent_s) : "–", short(worker.unrolls), short(worker.life),
    worker.pid === undefined ? "–" : String(worker.pid)]), [2, 3, 4, 5])];
}

export function hardwareOf(about) {
  const said = about.status.hardware && typeof about.status.hardware === "object" ? about.status.hardware : {};
  const measured = Object.fromEntries(Object.entries(about.newest).filter(([name]) => name.startsWith("system/") || name.startsWith("hardware/")));
  const all = Object.entries({ ...measured, ...said }).filter(([, value]) => Number.isFinite(value));
  if (!all.length) return null;
  return [el("dl.facts", {}, all.slice(0, 40).map(([name, value]) =>
    el("div", {}, el("dt", {}, name.slice(name.indexOf("/") + 1).replaceAll("_", " ")), el("dd", {}, short(value)))))];
}

export function sessionOf(about) {
  const { session } = about;
  const source = session.source || {}, machine = session.machine || {};
  const facts = [
    ["started", session.started ? new Date(session.started).toLocaleString() : ""],
    ["sessions", session.count > 1 ? String(session.count) : ""],
    ["commit", source.commit ? String(source.commit).slice(0, 12) + (source.dirty ? " with changes" : "") : ""],
    ["processor", machine.cpu ? `${machine.cpu}, ${machine.cores_usable} cores` : ""],
    ["GPU", Array.isArray(machine.gpus) ? machine.gpus.join(", ") : ""],
    ["why it ended", about.summary.reason ?? ""],
    ["last change", ago(about.changed)],
  ].filter(([, text]) => text);
  return [el("dl.facts", {}, facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(text))))),
    session.command ? el("pre.log", {}, session.command) : null];
}

export function flagsOf(about) {
  const flags = Object.entries(about.flags).sort(([a], [b]) => a.localeCompare(b));
  if (!flags.length) return null;
  return [el("details", {}, el("summary", {}, `all ${flags.length} flags of this run`),
    el("dl.facts.wide", {}, flags.map(([name, value]) => el("div", {}, el("dt", {}, `--${name}`), el("dd", {}, typeof value === "string" ? value : JSON.stringify(value))))))];
}
