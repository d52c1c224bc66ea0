// The view "Curves": every figure of the tasks over time, on one shared cursor.

import { byTask, bytes, el, empty, figure, hue, mib, problem, query, when } from "./dom.js";
import { Chart } from "./chart.js";
import { picker } from "./picker.js";
import { report } from "./report.js";
import { fetched } from "./stream.js";

/** How often (ms) to fetch samples, and the report, for which hosts may search what tasks have printed. */
const AGAIN = 10000;
const REPORT_AGAIN = 60000;
const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["1 day", 86400], ["All", 0]];
const percent = (value) => `${Math.round(value)} %`;
const rate = (value) => `${bytes(value)}/s`;
/** Known figures: their titles and units, in the order of the page. Those that tasks name come first. */
const KNOWN = [
  ["rate", "Examples per second", figure], ["pace", "Steps per second", figure], ["step", "Step", figure], ["gpu", "GPU use", percent],
  ["gpu_memory", "GPU memory", mib], ["celsius", "GPU temperature", (value) => `${Math.round(value)} °C`], ["watts", "GPU power", (value) => `${Math.round(value)} W`],
  ["cpu", "CPU cores", figure], ["memory", "Memory", mib], ["received", "Network, received (host)", rate], ["sent", "Network, sent (host)", rate],
  ["read", "Disk, read", rate], ["written", "Disk, written", rate],
];

export function curves(main, job, followJob) {
  const path = encodeURIComponent(job);
  const tasks = picker(() => draw());
  const spans = el("span", { class: "segments", role: "group", "aria-label": "Time span" });
  const cursorTime = el("output", { class: "cursor-time" });
  const errors = el("div");
  const charts = el("div", { class: "charts" });
  const figures = report(job);
  const made = new Map();
  let series = null;
  let events = [];
  let state = null;
  main.replaceChildren(el("div", { class: "tools", role: "toolbar", "aria-label": "Tools" }, tasks.element, spans, cursorTime), errors, charts, figures.element);
  charts.append(empty("Reading the samples of the hosts …"));
  for (const [label, seconds] of SPANS) {
    spans.append(el("button", { type: "button", "aria-pressed": String(Number(query.get("span") ?? 0) === seconds), onclick(event) {
      query.set({ span: seconds || null });
      for (const each of spans.children) each.setAttribute("aria-pressed", String(each === event.target));
      draw();
    } }, label));
  }

  followJob((value) => {
    if (value.error) {
      errors.replaceChildren(problem({ message: value.error, remedy: value.remedy }));
      return;
    }
    const first = !state || state.attempt !== value.attempt;
    const changed = first || state.state !== value.state;
    state = value;
    tasks.set(value.rows);
    if (first) update();
    if (changed) figures.update();
  });
  setInterval(() => state && !state.over && update(), AGAIN);
  setInterval(() => state && !state.over && !document.hidden && figures.update(), REPORT_AGAIN);
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) > 4) {
      width = entry.contentRect.width;
      draw();
    }
  }).observe(charts);

  async function update() {
    if (document.hidden) return;
    try {
      const [found, happened] = await Promise.all([fetched(`/api/series/${path}`), fetched(`/api/events/${path}`)]);
      series = found;
      events = happened.events;
      errors.replaceChildren(...found.errors.map(problem));
    } catch (error) {
      errors.replaceChildren(problem(error));
    }
    draw();
  }

  function pointed(time) {
    cursorTime.textContent = time === null ? "" : when(time);
    for (const chart of made.values()) chart.point(time);
  }

  function marksOf() {
    const restarts = new Map();
    return events.filter((event) => ["begin", "start", "restart", "retry", "failed", "stop"].includes(event.event)).flatMap((event) => {
      if (event.event === "begin") { // the first run of a task in an attempt is its start
        const key = `${event.task} ${event.attempt}`;
        restarts.set(key, (restarts.get(key) ?? 0) + 1);
        return restarts.get(key) > 1 ? [{ time: event.time, kind: "again", text: `restart of ${event.task}` }] : [];
      }
      if (event.event === "start") return event.attempt > 1 ? [{ time: event.time, kind: "attempt", text: `attempt ${event.attempt}` }] : [];
      return [{ time: event.time, kind: event.event === "failed" ? "fail" : "attempt", text: `${event.event} ${event.how}` }];
    });
  }

  function draw() {
    if (!series || !state) return;
    const chosen = tasks.chosen();
    const names = Object.keys(series.curves).filter((name) => series.curves[name].t.length);
    const hosts = new Set(state.rows.filter((row) => !chosen.length || chosen.includes(row.task)).map((row) => row.host));
    const wanted = (name) => (name.includes("/") ? !chosen.length || chosen.includes(name) : hosts.has(name));
    const known = new Set(names.flatMap((name) => Object.keys(series.curves[name])));
    const own = [...known].filter((each) => each.startsWith(".")).sort((one, other) => (other === ".loss") - (one === ".loss") || one.localeCompare(other));
    const order = [...own.map((each) => [each, each.slice(1), figure]), ...KNOWN.filter(([key]) => known.has(key))];
    if (!order.length) {
      made.clear();
      charts.replaceChildren(empty(state.over ? "No samples of this job are kept." : "The first samples come some ten seconds after the start. "
        + "The loss and the pace appear if the lines of the tasks name them (key progress of the job file). Meanwhile: ", `tfctl logs -f ${job}`));
      return;
    }
    const ends = names.map((name) => series.curves[name].t);
    const to = Math.max(...ends.map((times) => times[times.length - 1]));
    const span = Number(query.get("span") ?? 0);
    const from = span ? Math.max(to - span, Math.min(...ends.map((times) => times[0]))) : Math.min(...ends.map((times) => times[0]));
    const marks = marksOf();
    const shown = order.flatMap(([key, title, show]) => {
      const some = names.filter((name) => wanted(name) && series.curves[name][key]).sort(byTask);
      if (!some.length) return [];
      if (!made.has(key)) made.set(key, new Chart(title, show, { pointed }));
      const chart = made.get(key);
      return [[chart, some.map((name) => ({ name, hue: hue(name.includes("/") ? name : `h/${some.indexOf(name)}`), faint: some.length > 12, ...cut(series.curves[name], key, from) }))]];
    });
    const figureElements = shown.map(([chart]) => chart.element);
    if (figureElements.some((each, at) => each !== charts.children[at]) || charts.children.length !== figureElements.length) charts.replaceChildren(...figureElements);
    for (const [chart, lines] of shown) chart.draw({ lines, marks, from, to });
  }

  function cut(curve, key, from) {
    const first = curve.t.findIndex((time) => time >= from);
    return first <= 0 ? { t: curve.t, y: curve[key] } : { t: curve.t.slice(first), y: curve[key].slice(first) };
  }
}
