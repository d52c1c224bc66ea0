// Lines as they are shown: colours become spans, progress bars their last state, and whatever would be obeyed or
// hidden a question mark. Nothing here makes HTML.

const SGR = /\x1b\[([0-9;:]*)m/g;
const OTHER = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** The lines of one entry: several, if the task has logged them together. Returns [text, folded], where `folded` says
 *  how many states of a progress bar are left out. */
export function folded(text) {
  return text.replace(/\n$/, "").split("\n").map((line) => {
    const states = line.replace(/\r+$/, "").split("\r");
    return [states[states.length - 1], states.length - 1];
  });
}

/** The text without escapes, for copies and labels. */
export function plain(text) {
  return text.replace(SGR, "").replace(OTHER, "").replace(UNSEEN, "?");
}

/** Pieces of a line: [text, class], by its colours. */
export function pieces(text) {
  if (!text.includes("\x1b")) return [[text.replace(UNSEEN, "?"), ""]];
  const found = [];
  const style = { colour: "", bold: false, dim: false };
  let at = 0;
  const add = (part) => {
    const shown = part.replace(OTHER, "").replace(UNSEEN, "?");
    const names = [style.colour, style.bold && "bold", style.dim && "dim"].filter(Boolean).join(" ");
    if (shown) found.push([shown, names]);
  };
  for (const match of text.matchAll(SGR)) {
    add(text.slice(at, match.index));
    at = match.index + match[0].length;
    obey(style, match[1]);
  }
  add(text.slice(at));
  return found;
}

function obey(style, codes) {
  const numbers = (codes || "0").split(/[;:]/).map(Number);
  while (numbers.length) {
    const code = numbers.shift();
    if (code === 0) Object.assign(style, { colour: "", bold: false, dim: false });
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code >= 30 && code <= 37) style.colour = `ansi${code - 30}`;
    else if (code >= 90 && code <= 97) style.colour = `ansi${code - 90}`;
    else if (code === 39) style.colour = "";
    else if (code === 38 || code === 48) {
      const kind = numbers.shift();
      const values = numbers.splice(0, kind === 2 ? 3 : 1);
      if (code === 38 && kind === 5 && values[0] < 16) style.colour = `ansi${values[0] % 8}`;
    }
  }
}
