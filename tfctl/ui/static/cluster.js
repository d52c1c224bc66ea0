// The view "Cluster": jobs, hosts, and a tile for each GPU.

import { badge, count, counted, duration, el, empty, mib, problem, query, redraw, when, whole, hasEnded } from "./dom.js";
import { follow } from "./stream.js";

/** With more hosts than this, tiles are small and have no numbers. */
const MANY = 48;
const HOT = 85;

export function cluster(main) {
  const facts = el("dl", { class: "facts", "aria-label": "Summary" });
  const errors = el("div");
  const jobs = el("section", { "aria-labelledby": "jobs-title" }, el("h2", { id: "jobs-title", text: "Jobs" }), el("div"));
  const filter = el("input", { type: "search", placeholder: "Filter hosts", "aria-label": "Filter hosts by name, job or state",
    title: "Filter (/)", value: query.get("hosts") ?? "" });
  const legend = el("p", { class: "legend", "aria-hidden": "true" },
    el("i", { class: "key use" }), "GPU in use", el("i", { class: "key idle" }), "held, idle", el("i", { class: "key free" }), "free",
    el("i", { class: "key bad" }), "not usable");
  const grid = el("ul", { class: "hosts" });
  const detail = el("p", { class: "detail", "aria-live": "polite" });
  main.replaceChildren(facts, errors, jobs,
    el("section", { "aria-labelledby": "hosts-title" },
      el("div", { class: "head" }, el("h2", { id: "hosts-title", text: "Hosts" }), filter, legend), grid, detail));

  let last = null;
  const cells = new Map();
  filter.addEventListener("input", () => {
    query.set({ hosts: filter.value });
    if (last) drawHosts(last);
  });
  const describe = (event) => {
    const told = event.target.closest?.("[data-detail]");
    if (told) detail.textContent = told.dataset.detail;
  };
  grid.addEventListener("mouseover", describe);
  grid.addEventListener("focusin", describe);

  function drawHosts({ hosts }) {
    const word = filter.value.trim().toLowerCase();
    const shown = word ? hosts.filter((host) => words(host).includes(word)) : hosts;
    grid.classList.toggle("dense", hosts.length > MANY);
    legend.hidden = !hosts.some((host) => host.gpus.length);
    grid.classList.toggle("single", hosts.every((host) => host.gpus.length < 2));
    const made = shown.map((host) => {
      if (!cells.has(host.name)) cells.set(host.name, el("li"));
      const cell = cells.get(host.name);
      redraw(cell, JSON.stringify(host), () => hostCell(host, cell));
      return cell;
    });
    if (made.length !== grid.children.length || made.some((cell, at) => cell !== grid.children[at])) grid.replaceChildren(...made);
    if (!shown.length) grid.replaceChildren(el("li", { class: "none" }, hosts.length ? "No host matches." : "The inventory has no hosts."));
  }

  follow("/stream/cluster", {
    state(value) {
      if (value.error) {
        errors.replaceChildren(problem({ message: value.error, remedy: value.remedy }));
        return;
      }
      last = value;
      redraw(facts, JSON.stringify(summary(value)), () => summary(value).map(([name, text, kind]) =>
        el("div", { class: kind }, el("dt", { text: name }), el("dd", { text }))));
      redraw(errors, JSON.stringify(value.errors), () => value.errors.map(problem));
      redraw(jobs.lastChild, JSON.stringify(value.jobs), () => jobTable(value.jobs));
      drawHosts(value);
    },
  });
}

function words(host) {
  return [host.name, host.state, ...host.tasks.flat(), ...host.gpus.flatMap((gpu) => [gpu.name, gpu.holder])].join(" ").toLowerCase();
}

function summary({ hosts, jobs }) {
  const away = hosts.filter((host) => ["unreachable", "silent", "unfit"].includes(host.state));
  const ready = hosts.filter((host) => host.state === "ready").length;
  const gpus = hosts.flatMap((host) => host.gpus);
  const busy = gpus.filter((gpu) => gpu.job || gpu.holder);
  const uses = gpus.filter((gpu) => gpu.use !== null).map((gpu) => gpu.use);
  const going = (jobs ?? []).filter((job) => !job.finished && !hasEnded(job));
  return [
    ["Hosts ready", `${count(ready)} of ${count(hosts.length)}`, ""],
    ...(away.length ? [["Away", count(away.length), "bad"]] : []),
    ...(gpus.length ? [["GPUs held", `${count(busy.length)} of ${count(gpus.length)}`, ""]] : []),
    ...(uses.length ? [["Mean GPU use", `${Math.round(uses.reduce((sum, use) => sum + use, 0) / uses.length)} %`, ""]] : []),
    ["Jobs running", jobs ? count(going.length) : "…", ""],
  ];
}

function jobTable(jobs) {
  if (!jobs) return empty("Asking the hosts for their jobs …");
  if (!jobs.length) return empty("No job has run on these hosts yet. Start one: ", "tfctl start job.yaml");
  const reasons = jobs.some((job) => job.reason);
  const row = (job) => el("tr", {},
    el("th", { scope: "row" }, el("a", { href: `/job/${job.job}`, "data-row": "" }, job.job)),
    el("td", {}, badge(job.state), job.left ? ` ${counted(job.left, "task")} alive` : ""),
    el("td", { class: "progress-cell" }, bar(job.progress)),
    el("td", { class: "number wide" }, counted(job.tasks, "task")),
    el("td", { class: "number wide" }, counted(job.hosts, "host")),
    el("td", { class: "number", title: whole(job.started) }, when(job.started)),
    el("td", { class: "number wide" }, lasted(job)),
    reasons ? el("td", { class: "reason", title: job.reason }, job.reason) : null);
  const heads = ["Job", "State", "Progress", "Tasks", "Hosts", "Started", "Lasted"];
  const table = (title, some) => el("table", { class: "jobs" }, el("caption", { class: "unseen", text: title }),
    el("thead", {}, el("tr", {}, ...[...heads, ...(reasons ? ["Reason"] : [])].map((head, at) =>
      el("th", { scope: "col", class: [3, 4, 6].includes(at) ? "number wide" : at === 5 ? "number" : "" }, head)))),
    el("tbody", {}, ...some.map(row)));
  const over = (job) => hasEnded(job) && !job.left;
  const going = jobs.filter((job) => !over(job));
  const past = jobs.filter(over);
  return [
    going.length ? table("Jobs that run", going) : el("p", { class: "quiet" }, "No job is running."),
    past.length ? el("details", { open: past.length <= 6 || !going.length }, el("summary", {}, `${counted(past.length, "job")} ended`), table("Jobs that have ended", past)) : null,
  ].filter(Boolean);
}

function lasted(job) {
  return job.finished ? duration(job.finished - job.started) : hasEnded(job) ? "" : duration(Date.now() / 1000 - job.started);
}

/** A bar with the percentage and the time left. */
export function bar(progress) {
  if (!progress) return "";
  const text = [
    progress.percent !== null ? `${Math.floor(progress.percent)} %` : progress.step !== null ? `step ${count(progress.step)}` : "",
    progress.left !== null ? `${duration(progress.left)} left` : "",
  ].filter(Boolean).join(", ");
  if (progress.percent === null) return text;
  return el("span", { class: "bar" }, el("progress", { max: 100, value: progress.percent, "aria-label": "Progress" }), text);
}

function hostCell(host, cell) {
  cell.className = `host ${host.state}`;
  const facts = [host.os, host.memory && `${mib(host.memory[1])} of ${mib(host.memory[0])} memory free`,
    host.cpus && `load ${host.load} on ${host.cpus} CPUs`, host.free !== null && `${mib(host.free)} disk free`,
    host.stacks.length && host.stacks.join(" ")].filter(Boolean).join(" · ");
  const told = host.error ? `${host.error}${host.remedy ? ` → ${host.remedy}` : ""}`
    : host.state === "silent" ? `${host.name} has not answered for some seconds` : `${host.name}: ${facts}`;
  const jobs = [...new Set(host.tasks.map(([job]) => job))];
  const tiles = host.gpus.map((gpu) => tile(host, gpu));
  if (host.state === "ready" && !tiles.length) tiles.push(load(host));
  return [
    el("span", { class: "name", tabindex: 0, "data-row": "", "data-detail": told, title: told }, host.name),
    host.state === "ready" ? el("span", { class: "who" }, jobs.join(" ")) : el("span", { class: "who state" }, host.state === "asking" ? "…" : host.state),
    el("span", { class: "tiles" }, ...tiles),
  ];
}

function load(host) {
  const part = Math.min(1, host.load / (host.cpus || 1));
  const made = el("span", { class: "load", title: `load ${host.load} on ${host.cpus} CPUs` }, el("i"));
  made.firstChild.style.width = `${Math.round(part * 100)}%`;
  return made;
}

function tile(host, gpu) {
  const held = Boolean(gpu.job || gpu.holder);
  const idle = held && gpu.use !== null && gpu.use < 5;
  const kind = gpu.defect ? "bad" : !held ? "free" : idle ? "idle" : "use";
  const told = [`${host.name} GPU ${gpu.index}`, gpu.name, gpu.task ? `${gpu.job} ${gpu.task}` : gpu.holder || "free",
    gpu.use !== null ? `${gpu.use} % in use` : "", memory(gpu), gpu.celsius !== null ? `${gpu.celsius} °C` : "",
    gpu.watts !== null ? `${gpu.watts} W` : "", gpu.defect].filter(Boolean).join(" · ");
  const made = el(gpu.job ? "a" : "span", { class: `tile ${kind}${gpu.celsius >= HOT ? " hot" : ""}`, "data-detail": told, title: told,
    "aria-label": told, "data-row": "", tabindex: 0, href: gpu.job ? `/logs/${gpu.job}?task=${gpu.task}` : null,
    role: gpu.job ? null : "img" },
  el("b", { "aria-hidden": "true" }, gpu.use !== null ? String(gpu.use) : ""), el("i"), el("u"));
  made.querySelector("i").style.height = `${held ? gpu.use ?? 100 : 0}%`;
  made.querySelector("u").style.width = `${gpu.memory && gpu.used ? Math.min(100, Math.round((gpu.used / gpu.memory) * 100)) : 0}%`;
  return made;
}

function memory(gpu) {
  if (!gpu.memory) return "";
  return gpu.used !== null ? `${mib(gpu.used)} of ${mib(gpu.memory)}` : mib(gpu.memory);
}
