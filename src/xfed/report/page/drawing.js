// Charts (uPlot) and heat maps in the page's colours; both are drawn anew when these or the width change.

const DASHES = [[], [10, 5], [3, 4], [14, 4, 3, 4], [7, 3], [2, 2]];
const redraws = new Map();

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (number) => css("--c" + (number % 6));

function keepDrawn(key, draw) {
  redraws.set(key, draw);
  draw();
}

let waiting = 0;
function redrawAll() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => redraws.forEach((draw) => draw()));
}

const charts = new Map();

// Steps between ticks of an axis that counts rounds.
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

// Draws named lines {name, x, y, look}; gives the chart.
function chart(place, lines, { x, y, height = 300, xText, yText, hooks = {}, axes = {} }) {
  charts.get(place)?.destroy();
  const tables = lines.map((line) => [Array.from(line.x), Array.from(line.y)]);
  const joined = tables.length > 1 ? uPlot.join(tables) : tables[0];
  const axis = { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid") }, font: "12px system-ui" };
  const made = new uPlot({
    width: place.clientWidth,
    height,
    scales: { x: { time: false, ...(axes.x ?? {}) }, y: axes.y ?? {} },
    legend: { markers: { width: 2, fill: (made, index) => made.series[index].stroke() } },
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    hooks,
    axes: [
      { ...axis, ...(x === "round" && { incrs: WHOLE }), label: x, labelSize: 24, labelFont: "12px system-ui", values: (_, all) => all.map((each) => xText?.(each) ?? each) },
      { ...axis, label: y, labelSize: 22, labelFont: "12px system-ui", size: 58, values: (_, all) => all.map((each) => yText?.(each) ?? each) },
    ],
    series: [
      { label: x, value: (_, each) => (each === null || each === undefined ? "–" : xText?.(each) ?? each) },
      ...lines.map((line) => ({
        label: line.name,
        stroke: colour(line.look),
        dash: DASHES[line.look % 6],
        width: line.width ?? 2,
        spanGaps: true,
        points: { show: line.points ?? false, size: 5 },
        value: (_, each) => (each === null || each === undefined ? "–" : yText?.(each) ?? each),
      })),
    ],
  }, joined, place);
  charts.set(place, made);
  return made;
}

const SCALE = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

function shade(share) {
  const at = Math.min(0.9999, Math.max(0, share)) * (SCALE.length - 1), low = Math.floor(at), part = at - low;
  const [a, b] = [SCALE[low], SCALE[low + 1]].map((text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)));
  return "rgb(" + a.map((value, i) => Math.round(value + part * (b[i] - value))).join(",") + ")";
}

// Draws rows × columns of numbers; pointer and arrow keys read single cells out.
function heatMap(place, { rows, columns, value, most, tell, label, mostText }) {
  const canvas = element("canvas", { tabIndex: 0, width: columns, height: rows });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label + "; arrow keys read single cells");
  const tall = Math.min(440, Math.max(120, (place.clientWidth * rows) / columns, rows * 5));
  canvas.style.height = Math.min(tall, Math.max(rows * 26, 120)) + "px";
  const pen = canvas.getContext("2d");
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      pen.fillStyle = shade(value(i, j) / most);
      pen.fillRect(j, i, 1, 1);
    }
  }
  const said = element("output", { textContent: label });
  let at = [0, 0];
  const read = (i, j) => {
    at = [Math.min(rows - 1, Math.max(0, i)), Math.min(columns - 1, Math.max(0, j))];
    said.textContent = tell(...at);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    read(Math.floor(((event.clientY - box.top) / box.height) * rows), Math.floor(((event.clientX - box.left) / box.width) * columns));
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    read(at[0] + step[0], at[1] + step[1]);
  });
  const bar = element("i");
  bar.style.background = "linear-gradient(90deg," + SCALE.join(",") + ")";
  place.replaceChildren(canvas, element("div", { className: "scale" }, "0", bar, mostText), said);
}
