// Elements, and how values are shown. Text of hosts is only ever set as text.

/** Make an element. `props`: attributes, `on…` functions, `text`; children are nodes or strings. */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Make an element of SVG. */
export function svg(tag, props = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A word for a state, with its colour and, for those who see none, its shape. */
export function badge(state) {
  return el("span", { class: `badge ${state}` }, state);
}

/** Whether a job is over, or at least its last attempt. */
export function hasEnded(job) {
  return ["succeeded", "failed", "stopped"].includes(job.state);
}

/** What a view shows when there is nothing to show: a sentence, and the command that changes that. */
export function empty(sentence, command) {
  return el("p", { class: "empty" }, sentence, command ? el("code", { text: command }) : null);
}

/** An error with its remedy. */
export function problem(error) {
  return el("div", { class: "problem", role: "alert" },
    el("p", { text: error.message }),
    error.remedy ? el("p", { class: "remedy" }, "→ ", error.remedy) : null);
}

/** Replace the children of an element only if what they are made from has changed. */
export function redraw(target, key, make) {
  if (target.dataset.key === key) return;
  target.dataset.key = key;
  target.replaceChildren(...[make()].flat().filter(Boolean));
}

const clockFormat = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dayFormat = new Intl.DateTimeFormat([], { month: "short", day: "numeric" });
const wholeFormat = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "long" });
const numberFormat = new Intl.NumberFormat("en");

/** The time of day, by the reader's clock. */
export function clock(seconds, milliseconds = false) {
  const text = clockFormat.format(seconds * 1000);
  return milliseconds ? `${text}.${String(Math.floor((seconds * 1000) % 1000)).padStart(3, "0")}` : text;
}

/** The time of day, with the date unless it is today. */
export function when(seconds) {
  const then = new Date(seconds * 1000);
  return then.toDateString() === new Date().toDateString() ? clock(seconds) : `${dayFormat.format(then)} ${clock(seconds)}`;
}

/** The whole time, in the reader's zone and in UTC, for hovering. */
export function whole(seconds) {
  return `${wholeFormat.format(seconds * 1000)} · ${new Date(seconds * 1000).toISOString()}`;
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(seconds < 36000 ? 1 : 0)} h` : `${Math.round(seconds / 86400)} d`;
}

export function count(value) {
  return numberFormat.format(value);
}

/** A number with three significant digits, and SI prefixes from a million on. */
export function figure(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (size >= 100) return numberFormat.format(Math.round(value));
  if (size !== 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

/** Bytes, such as 1.5 GiB. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toPrecision(value < 10 ? 2 : 3) : Math.round(value)} ${units[unit]}`;
}

export const mib = (value) => bytes(value * 1048576);

/** "1 host", "3 hosts". */
export function counted(number, one) {
  return `${count(number)} ${one}${number === 1 ? "" : "s"}`;
}

/** The colour of a task among others: one of twelve, by its role and index. */
export function hue(task) {
  let sum = 0;
  for (const letter of task.split("/")[0]) sum = (sum * 31 + letter.charCodeAt(0)) % 12;
  return (sum + Number(task.split("/")[1] || 0)) % 12;
}

/** Order tasks by role, then by index. */
export function byTask(one, other) {
  const [role, index] = one.split("/");
  const [otherRole, otherIndex] = other.split("/");
  return role.localeCompare(otherRole) || Number(index) - Number(otherIndex);
}

/** The query of the URL. `query.set` changes it without a new page. */
export const query = {
  get: (name) => new URLSearchParams(location.search).get(name),
  all: (name) => new URLSearchParams(location.search).getAll(name),
  set(values) {
    const params = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(values)) {
      params.delete(name);
      for (const each of [value].flat()) if (each !== null && each !== "") params.append(name, each);
    }
    const text = params.toString().replaceAll("%2F", "/");
    history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  },
};
