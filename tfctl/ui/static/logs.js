// The view "Logs": what tasks print, merged by time, live; search on the hosts.

import { folded, pieces, plain } from "./ansi.js";
import { clock, count, counted, bytes, el, empty, hue, problem, query, whole } from "./dom.js";
import { List } from "./list.js";
import { picker } from "./picker.js";
import { fetched, follow } from "./stream.js";

/** Lines kept in the tab, and read at a time. The rest stays on the hosts. */
const MOST = 20000;
const PAGE = 1000;

export function logs(main, job, followJob) {
  const path = encodeURIComponent(job);
  let live = false; // whether the list ends with the newest line
  let over = false; // whether the job has ended, so that no new line comes
  let waiting = []; // new lines that came while the reader was elsewhere
  let selected = null;
  let loading = null;
  let stop = () => {};
  const exhausted = { top: false };

  // The tools.
  const tasks = picker(() => { live = false; start(); });
  const field = el("input", { type: "search", placeholder: "Search: a regular expression", title: "Search on the hosts (/)",
    "aria-label": "Search with a regular expression", value: query.get("q") ?? "", spellcheck: "false", autocomplete: "off" });
  const found = el("span", { class: "found", role: "status" });
  const previous = button("↑", "Previous match (N)", () => step(-1));
  const next = button("↓", "Next match (n)", () => step(1));
  const only = button("Only matches", "Show only the lines that match", () => showOnly(only.getAttribute("aria-pressed") !== "true"));
  only.setAttribute("aria-pressed", "false");
  const cancel = button("Cancel", "Cancel the search (Esc)", () => endSearch());
  const firstError = button("First error", "Go to the first error (e)", () => findError());
  const copy = button("Copy", "Copy the lines that are loaded", () => copyLines());
  const save = el("a", { class: "button", title: "Download all lines as text", download: "" }, "Download");
  const pill = button("", "Go to the end and follow it (G)", () => toEnd());
  pill.className = "pill";
  const message = el("div", { class: "messages" });
  const counts = el("div", { class: "counts", "aria-label": "Matches by task" });
  const detail = el("aside", { class: "line-detail", "aria-label": "The selected line", hidden: true });
  const list = new List("Lines", { draw: drawRow, near, moved });
  const nothing = el("div");
  main.classList.add("full");
  main.replaceChildren(
    el("div", { class: "tools", role: "toolbar", "aria-label": "Tools" }, tasks.element,
      el("span", { class: "search" }, field, found, previous, next, only, cancel), firstError, copy, save),
    message, counts, el("div", { class: "stage" }, list.element, nothing, pill), detail);
  for (const each of [previous, next, only, cancel]) each.hidden = true;

  followJob((state) => {
    if (state.error) {
      message.replaceChildren(problem({ message: state.error, remedy: state.remedy }));
      return;
    }
    tasks.set(state.rows);
    over = state.over;
    pillText();
  });

  function button(label, title, act) {
    const named = /\w/.test(label) || !label ? null : title; // an arrow is no name
    return el("button", { type: "button", title, "aria-label": named, onclick: act }, label);
  }

  function parameters(more = {}) {
    const params = new URLSearchParams();
    for (const task of tasks.chosen()) params.append("task", task);
    for (const [name, value] of Object.entries(more)) params.set(name, value);
    return params.toString();
  }

  // Reading.

  /** Begin at the end, or at the line that the URL names. */
  function start() {
    endSearch();
    save.href = `/download/${path}?${parameters()}`;
    if (query.get("t")) {
      goTo(Number(query.get("t")), query.get("at"));
    } else {
      toEnd();
    }
    if (field.value) search();
  }

  function toEnd() {
    query.set({ t: null, at: null });
    list.pinned = true;
    if (live) {
      if (waiting.length) list.append(waiting.splice(0), MOST);
      list.toEnd();
      pillText();
      return;
    }
    stop();
    list.reset([]);
    live = true;
    exhausted.top = false;
    nothing.replaceChildren(empty("Reading the lines …"));
    let fresh = false;
    const show = () => nothing.replaceChildren(...(list.items.length ? [] : [emptyNote()]));
    stop = follow(() => `/stream/logs/${path}?${parameters({ tail: 2000 })}`, {
      lines(items) {
        const rows = toRows(items);
        if (fresh) {
          fresh = false;
          list.reset([]);
        }
        if (list.pinned) list.append(rows, MOST);
        else {
          waiting.push(...rows);
          if (waiting.length > MOST) { // they stay on the hosts
            waiting = [];
            live = false;
            stop();
          }
        }
        show();
        pillText();
      },
      note: (text) => note(text),
      problem: (error) => complain(error),
      end() {
        over = true;
        stop();
        show();
        pillText();
      },
    }, { opened: () => { fresh = true; waiting = []; setTimeout(show, 1500); } });
  }

  function emptyNote() {
    if (over) return empty("These tasks have printed nothing.");
    return empty("Nothing has been printed yet. Lines appear here as tasks print them. The states of the tasks: ", `tfctl status ${job}`);
  }

  /** Read once, and return the rows. */
  function read(url) {
    return new Promise((done) => {
      const rows = [];
      const close = follow(url, {
        lines: (items) => rows.push(...toRows(items)),
        problem: (error) => complain(error),
        end() { close(); done(rows); },
        broken() { done(rows); },
      }, { again: false });
    });
  }

  /** Show the lines around a time, and select the one that a task has printed then. */
  async function goTo(time, task) {
    stop();
    live = false;
    list.pinned = false;
    exhausted.top = false;
    const rows = await read(`/stream/around/${path}?${parameters({ time, before: 500, after: 500 })}`);
    const once = unique(rows);
    list.reset(once);
    nothing.replaceChildren(...(once.length ? [] : [emptyNote()]));
    const at = once.findIndex((row) => Math.abs(row.time - time) < 1e-5 && (!task || row.task === task));
    if (at >= 0) select(at);
    pillText();
  }

  async function near(where) {
    if (loading || only.getAttribute("aria-pressed") === "true" || !list.items.length) return;
    if (where === "top" && !exhausted.top) {
      loading = "top";
      const first = list.items[0].time;
      const rows = unique(await read(`/stream/around/${path}?${parameters({ time: first, before: PAGE })}`), list.items, first);
      exhausted.top = !rows.length;
      if (rows.length) list.prepend(rows);
      loading = null;
    } else if (where === "bottom" && !live && !list.pinned) {
      loading = "bottom";
      const last = list.items[list.items.length - 1].time;
      const rows = unique(await read(`/stream/around/${path}?${parameters({ time: last, after: PAGE })}`), list.items, last);
      if (rows.length) list.append(rows, MOST * 2);
      loading = rows.length ? null : "nothing more";
      setTimeout(() => { loading = null; }, rows.length ? 0 : 3000);
    }
  }

  /** Leave out rows that are known. Two readings have the lines of one moment in common. */
  function unique(rows, known = [], time = null) {
    const key = (row) => `${row.time} ${row.task} ${row.part} ${row.text ?? row.gap?.cause}`;
    const seen = new Set(known.filter((row) => time === null || row.time === time).map(key));
    return rows.filter((row) => !seen.has(key(row)) && (time !== null || seen.add(key(row))));
  }

  function toRows(items) {
    const rows = [];
    for (const item of items) {
      if (!Array.isArray(item)) {
        rows.push({ time: item.time, gap: item, task: item.tasks[0] ?? "", host: item.host, part: 0 });
        continue;
      }
      const [time, task, host, text, size] = item;
      folded(text).forEach(([line, states], part) => rows.push({ time, task, host, text: line, states, size, part }));
    }
    return rows;
  }

  // Drawing.

  function drawRow(row, index) {
    const name = el("span", { class: `task hue${row.task ? hue(row.task) : 0}` }, row.task);
    const made = el("div", { class: "line" }, el("time", { title: whole(row.time) }, clock(row.time, true)), name);
    if (row.gap) {
      made.classList.add("gap");
      made.append(el("span", { class: "text" }, sentence(row.gap)));
    } else {
      const text = el("span", { class: "text" });
      for (const [part, kind] of pieces(row.text.length > 2000 ? row.text.slice(0, 2000) : row.text)) {
        text.append(...marked(part, kind));
      }
      if (row.text.length > 2000 || row.size) text.append(el("em", {}, ` … ${count(row.size ?? row.text.length)} characters`));
      if (row.states) text.prepend(el("em", { title: "A progress bar: only its last state is shown" }, `⟳ ${count(row.states)} `));
      made.append(text);
    }
    made.classList.toggle("selected", row === selected);
    made.addEventListener("click", () => !String(getSelection()) && select(list.items.indexOf(row)));
    made.id = `line-${index}`;
    return made;
  }

  let matcher = null;
  function marked(part, kind) {
    if (!matcher) return [kind ? el("span", { class: kind }, part) : part];
    const made = [];
    let at = 0;
    for (const match of part.matchAll(matcher)) {
      if (!match[0] || made.length > 100) break;
      made.push(el("span", { class: kind }, part.slice(at, match.index)), el("mark", {}, match[0]));
      at = match.index + match[0].length;
    }
    made.push(el("span", { class: kind }, part.slice(at)));
    return made;
  }

  function sentence(gap) {
    const some = gap.tasks.length > 3 ? counted(gap.tasks.length, "task") : gap.tasks.join(", ");
    if (gap.cause === "dropped") return `${gap.host}: journald dropped ${counted(gap.lines, "line")} of ${some} before this`;
    if (gap.cause === "cut") return `${gap.host}: the line above was cut: it has ${bytes(gap.size)}`;
    if (gap.cause === "unsearched") return `${gap.host}: a line of ${some} took too long to search and was left out`;
    return `${gap.host}: lines of ${some} ${gap.since ? `after ${clock(gap.since)}` : ""} are no longer in the journal`;
  }

  function select(index) {
    selected = list.items[index] ?? null;
    if (selected) list.show(index);
    list.refresh();
    detail.hidden = !selected;
    if (!selected) return;
    const row = selected;
    list.element.setAttribute("aria-activedescendant", `line-${index}`);
    const text = row.gap ? sentence(row.gap) : plain(row.text);
    const link = `${location.origin}/logs/${path}?t=${row.time}&at=${row.task}`;
    detail.replaceChildren(
      el("p", {}, el("b", { text: row.task }), ` on ${row.host} · `, el("time", {}, whole(row.time)),
        el("span", { class: "actions" }, button("Only this task", "", () => { list.pinned = true; live = false; tasks.only(row.task); }),
          button("Copy", "", () => navigator.clipboard.writeText(text)),
          el("a", { class: "button", href: link.slice(location.origin.length), title: "A link to this line" }, "Link"),
          button("Close", "Esc", () => select(-1)))),
      el("pre", { text, tabindex: 0 }));
  }

  function moved(atEnd) {
    list.pinned = atEnd && live;
    if (list.pinned && waiting.length) list.append(waiting.splice(0), MOST);
    pillText();
  }

  function pillText() {
    const atEnd = list.pinned && live;
    pill.hidden = false;
    pill.classList.toggle("following", atEnd);
    pill.disabled = atEnd;
    pill.textContent = atEnd ? (over ? "End: the job is over" : "Following") : waiting.length ? `${counted(waiting.length, "new line")} ↓` : "Go to the end ↓";
  }

  function note(text) {
    message.replaceChildren(el("p", { class: "note", role: "status" }, text));
    setTimeout(() => message.querySelector(".note")?.remove(), 8000);
  }

  function complain(error) {
    if ([...message.querySelectorAll(".problem p:first-child")].some((each) => each.textContent === error.message)) return;
    message.append(problem(error));
  }

  // Searching. The hosts search; what they find is sorted here.

  let hits = [];
  let current = -1;
  let before = null; // the lines that were shown before "Only matches"
  let stopSearch = () => {};

  function search(errors = false) {
    endSearch(true);
    query.set({ q: errors ? null : field.value });
    if (!errors && !field.value) return;
    try {
      matcher = errors ? null : new RegExp(field.value, "g");
    } catch {
      matcher = null; // Python may understand it: the hosts decide
    }
    message.replaceChildren();
    found.textContent = "Searching …";
    cancel.hidden = false;
    let arrived = [];
    const url = `/stream/search/${path}?${parameters(errors ? { errors: 1 } : { q: field.value })}`;
    stopSearch = follow(url, {
      lines: (items) => { arrived.push(...toRows(items).filter((row) => row.part === 0)); },
      counts(byTask) {
        hits = arrived.sort((one, other) => one.time - other.time);
        total(byTask);
        if (only.getAttribute("aria-pressed") === "true") list.reset(hits);
      },
      problem: (error) => complain(error),
      end(result) {
        stopSearch();
        cancel.hidden = true;
        hits = arrived.sort((one, other) => one.time - other.time);
        total(result.counts ?? {}, result.total > result.shown ? ` (the first ${count(result.shown)} are shown)` : "");
        if (!hits.length) found.textContent = errors ? "No error was found" : "No match";
        else if (errors) step(1);
        else if (only.getAttribute("aria-pressed") !== "true") { current = hits.length; step(-1); }
      },
      broken() { // a stream does not say why it is refused
        endSearch(true);
        fetched(url).catch(complain);
      },
    }, { again: false });
    list.refresh();
  }

  function total(byTask, more = "") {
    const all = Object.values(byTask).reduce((sum, each) => sum + each, 0);
    found.textContent = `${current >= 0 ? `${count(current + 1)} of ` : ""}${counted(all, "match").replace(/matchs$/, "matches")}${more}`;
    for (const each of [previous, next, only]) each.hidden = !all;
    counts.replaceChildren(...Object.entries(byTask).sort((one, other) => other[1] - one[1]).slice(0, 40).map(([task, number]) =>
      el("button", { type: "button", title: `Only ${task}`, onclick: () => { live = false; tasks.only(task); } }, `${task} `, el("b", { text: count(number) }))));
    total.last = [byTask, more];
  }

  async function step(by) {
    if (!hits.length) return;
    current = Math.max(0, Math.min(hits.length - 1, current < 0 ? (by > 0 ? 0 : hits.length - 1) : current + by));
    total(...total.last);
    const hit = hits[current];
    const at = list.items.findIndex((row) => row.time === hit.time && row.task === hit.task && row.text === hit.text);
    if (at >= 0) select(at);
    else await goTo(hit.time, hit.task);
  }

  function showOnly(on) {
    only.setAttribute("aria-pressed", String(on));
    if (on) {
      before = { items: list.items, live };
      stop();
      live = false;
      list.pinned = false;
      list.reset(hits);
      list.element.scrollTop = list.element.scrollHeight;
    } else {
      before = null;
      if (selected) goTo(selected.time, selected.task);
      else toEnd();
    }
    pillText();
  }

  function endSearch(again = false) {
    stopSearch();
    cancel.hidden = true;
    hits = [];
    current = -1;
    matcher = null;
    found.textContent = again ? "" : found.textContent === "Searching …" ? "Cancelled" : "";
    counts.replaceChildren();
    for (const each of [previous, next, only]) each.hidden = true;
    if (before && !again) showOnly(false);
  }

  function findError() {
    field.value = "";
    search(true);
  }

  async function copyLines() {
    const text = list.items.map((row) => `${new Date(row.time * 1000).toISOString()} ${row.task} │ ${row.gap ? sentence(row.gap) : plain(row.text)}`).join("\n");
    await navigator.clipboard.writeText(text).then(() => note(`${counted(list.items.length, "line")} copied`), () => note("The browser does not allow that"));
  }

  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      if (hits.length && query.get("q") === field.value) step(event.shiftKey ? -1 : 1);
      else search();
    }
  });
  field.addEventListener("search", () => !field.value && endSearch());
  const keys = {
    j: () => select(Math.min(list.items.length - 1, selected ? list.items.indexOf(selected) + 1 : list.items.length - 1)),
    k: () => select(Math.max(0, selected ? list.items.indexOf(selected) - 1 : list.items.length - 1)),
    n: () => step(1),
    N: () => step(-1),
    e: findError,
    G: toEnd,
    Escape: () => (cancel.hidden ? select(-1) : endSearch()),
  };
  main.addEventListener("key", (event) => {
    const act = keys[event.detail];
    if (!act) return;
    event.preventDefault();
    if ("jk".includes(event.detail)) list.pinned = false;
    act();
  });
  start();
}
