// The page's data: plain values in JSON, arrays in one compressed block.

const DATA = JSON.parse(document.getElementById("data").textContent);
const GRID = DATA.grid;
const MOST_COMPARED = 6;

async function openBlock() {
  const text = atob(document.getElementById("block").textContent.trim());
  const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

const TYPES = { Uint8Array, Uint16Array, Uint32Array, Float32Array };

// Replaces every {type, start, length} by the array it stands for.
function unpack(value, block) {
  if (Array.isArray(value)) return value.map((each) => unpack(each, block));
  if (value === null || typeof value !== "object") return value;
  if ("start" in value) return new TYPES[value.type](block, value.start, value.length);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpack(each, block)]));
}

const percent = (share, digits = 2) => (100 * share).toFixed(digits) + " %";

function quantity(value, unit) {
  if (unit === "ms") return value.toPrecision(4) + " ms";
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return (value / size).toPrecision(4) + " " + letter + unit;
  }
  return value.toFixed(0) + " " + unit;
}

// A number for an axis, which names the unit itself.
function compact(value) {
  const [size, letter] = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]].find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  return Number((value / size).toPrecision(4)) + letter;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values, weights = null) => (weights === null ? sum(values) / values.length : sum(values.map((value, i) => value * weights[i])) / sum(weights));

// The mean of the lowest tenth of the clients evaluated, at least of one; unweighted.
function worstTenth(values) {
  const sorted = Array.from(values).sort((a, b) => a - b);
  return mean(sorted.slice(0, Math.max(1, Math.round(sorted.length / 10))));
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function options(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, text]) => element("option", { value, textContent: text })));
  if (chosen !== undefined) select.value = chosen;
}
