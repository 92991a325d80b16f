// The centre piece: accuracy against cost with a threshold in the reader's hand.

const choice = {
  active: 0, split: "test", unit: "MACs", mode: "shared", level: 0, exitLevels: [], client: 0, clientLevels: new Map(), compared: [],
};
let runs = [];
const byId = (id) => document.getElementById(id);
const run = () => runs[choice.active];
const trace = (each = run()) => each.traces[choice.split];
const costs = (each = run()) => each.costs[choice.unit];
const canExit = (each) => Object.keys(each.traces).length > 0 && each.costs.MACs.length > 1;

const curves = new Map();
function curveOf(each, only = null) {
  const key = [each.name, choice.split, choice.unit, only].join("|");
  if (!curves.has(key)) curves.set(key, curve(trace(each), costs(each), only));
  return curves.get(key);
}

function levels(client) {
  const all = (level) => new Array(costs().length - 1).fill(level);
  if (choice.mode === "exits") return choice.exitLevels;
  if (choice.mode === "client") return all(choice.clientLevels.get(client) ?? choice.level);
  return all(choice.level);
}

const shownClient = () => (choice.mode === "client" ? choice.client : null);
const shownLevel = () => (choice.mode === "client" ? choice.clientLevels.get(choice.client) ?? choice.level : choice.level);

// What the live figures are about: one client, or all.
function outcome(of = choice.split) {
  const found = simulate(run().traces[of], costs(), levels);
  const place = shownClient() === null ? -1 : run().traces[of].clients.indexOf(shownClient());
  const accuracy = place < 0 ? found.meanAccuracy : found.accuracy[place];
  return { ...found, shownAccuracy: accuracy, shownCost: place < 0 ? found.meanCost : found.cost[place] };
}

function setLevel(level) {
  level = Math.min(GRID.length - 1, Math.max(0, level));
  if (choice.mode === "client") choice.clientLevels.set(choice.client, level);
  else choice.level = level;
  if (choice.mode === "exits") choice.exitLevels.fill(level);
  showThresholds();
  showLive();
}

// Sliders

function slider(name, label, level, moved) {
  const input = element("input", { type: "range", min: 0, max: GRID.length - 1, step: 1, value: level, id: "threshold-" + name });
  const said = element("output", { textContent: String(GRID[level]), id: "threshold-" + name + "-said" });
  const tell = () => {
    said.textContent = String(GRID[input.valueAsNumber]);
    input.setAttribute("aria-valuetext", "threshold " + GRID[input.valueAsNumber]);
  };
  input.setAttribute("aria-label", "threshold, " + label);
  input.addEventListener("input", () => { tell(); moved(input.valueAsNumber); });
  tell();
  return element("div", { className: "threshold" }, element("div", { className: "said" }, element("span", { textContent: label }), said), input);
}

function showThresholds() {
  const place = byId("thresholds"), focused = document.activeElement?.id;
  if (choice.mode === "exits") {
    place.replaceChildren(...choice.exitLevels.map((level, j) => slider(String(j + 1), "exit " + (j + 1), level, (moved) => {
      choice.exitLevels[j] = moved;
      showLive();
    })));
  } else if (choice.mode === "client") {
    const select = element("select", { id: "client" });
    const clients = Array.from(trace().clients);
    options(select, clients.map((c) => [c, "client " + c + (choice.clientLevels.has(c) ? " (own)" : "")]), choice.client);
    select.addEventListener("change", () => { choice.client = Number(select.value); showThresholds(); showTradeOff(); });
    const label = element("label", { className: "said" }, "whose ");
    label.append(select);
    place.replaceChildren(label, slider("client", "client " + choice.client, shownLevel(), (moved) => {
      choice.clientLevels.set(choice.client, moved);
      showLive();
    }));
  } else {
    place.replaceChildren(slider("shared", "threshold", choice.level, (moved) => { choice.level = moved; showLive(); }));
  }
  if (focused) byId(focused)?.focus();
}

// Live figures

function shareBar(place, shares) {
  place.replaceChildren(...Array.from(shares).map((share, j) => {
    const text = share >= 0.3 ? "exit " + (j + 1) + " · " + percent(share, 0) : share >= 0.12 ? percent(share, 0) : "";
    const part = element("span", { textContent: text });
    part.style.width = 100 * share + "%";
    part.style.background = ["#9bd3f7", "#f2b48a", "#8fdcc2", "#e9bcd6", "#ecd08a", "#c3c9d0"][j % 6];
    part.title = "exit " + (j + 1) + ": " + percent(share);
    return part;
  }));
  place.setAttribute("aria-label", "leaving at " + Array.from(shares).map((s, j) => "exit " + (j + 1) + ": " + percent(s)).join(", "));
}

function showLive() {
  const found = outcome(), full = costs().at(-1);
  const fullCurve = curveOf(run(), shownClient());
  byId("live-accuracy").textContent = percent(found.shownAccuracy);
  byId("live-accuracy").dataset.value = found.shownAccuracy;
  byId("live-cost").textContent = quantity(found.shownCost, choice.unit);
  byId("live-cost").dataset.value = found.shownCost;
  byId("live-saved").textContent = percent(1 - found.shownCost / full, 1) + " of " + quantity(full, choice.unit);
  byId("live-full").textContent = percent(fullCurve.accuracy.at(-1));
  byId("live-worst").textContent = percent(worstTenth(found.accuracy));
  byId("live-worst").dataset.value = worstTenth(found.accuracy);
  const other = choice.split === "test" ? "calibration" : "test";
  byId("live-other-row").style.display = other in run().traces ? "" : "none";
  if (other in run().traces) {
    const there = outcome(other);
    byId("live-other-name").textContent = "on " + other + " samples";
    byId("live-other").textContent = percent(there.shownAccuracy) + ", " + quantity(there.shownCost, choice.unit);
  }
  shareBar(byId("live-shares"), found.shares);
  byId("live-shares").dataset.value = JSON.stringify(Array.from(found.shares));
  const name = policyName();
  byId("download-hint").textContent = name + ": for xfed-runtime, export and serve; answers with " + ANSWERED[run().answers] + "." + (choice.split === "test" && "calibration" in run().traces ? " Choose on calibration samples; test samples then say what came of it." : "");
  placeHandle(found);
  showEqual(found);
  redraws.get("clients")?.();
}

const ANSWERED = { own: "an exit's own answer", running: "the running mean of the exits passed" };

// Says what samples leave with and what their confidence is of; whose it is where the compared methods differ.
function showAnswers() {
  const kinds = Object.keys(ANSWERED).map((kind) => [ANSWERED[kind], comparedRuns().filter((each) => each.answers === kind).map((each) => each.name)]).filter(([, names]) => names.length);
  byId("answers-hint").textContent = "They leave with " + kinds.map(([words, names]) => words + (kinds.length > 1 ? " (" + names.join(", ") + ")" : "")).join("; ") + ".";
}

// Policy file

const policyName = () => (choice.mode === "client" ? "client-" + String(choice.client).padStart(6, "0") + ".json" : "shared.json");

function policy() {
  const threshold = choice.mode === "exits" ? choice.exitLevels.map((level) => GRID[level]) : GRID[shownLevel()];
  const whose = choice.mode === "client" ? "client " + choice.client : "all clients";
  return { kind: "confidence", threshold, answer: run().answers, note: "chosen by hand on the report page for " + whose + " of " + run().name + ", on " + choice.split + " samples" };
}

function download() {
  const link = element("a", { download: policyName(), href: URL.createObjectURL(new Blob([JSON.stringify(policy(), null, 1) + "\n"], { type: "application/json" })) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The chart and its handle

const handle = element("div", { className: "handle", tabIndex: 0, id: "handle" });
handle.setAttribute("role", "slider");
handle.setAttribute("aria-label", "threshold, on the curve");
handle.setAttribute("aria-valuemin", "0");
handle.setAttribute("aria-valuemax", "1");

let lastFound = null;

function placeHandle(found = lastFound) {
  const drawn = charts.get(byId("trade-off-plot"));
  lastFound = found;
  if (!drawn || !found) return;
  handle.style.left = drawn.valToPos(found.shownCost, "x") + "px";
  handle.style.top = drawn.valToPos(100 * found.shownAccuracy, "y") + "px";
  handle.setAttribute("aria-valuenow", GRID[shownLevel()]);
  handle.setAttribute("aria-valuetext", "threshold " + GRID[shownLevel()] + ", accuracy " + percent(found.shownAccuracy) + ", cost " + quantity(found.shownCost, choice.unit));
}

function comparedRuns() {
  const chosen = choice.compared.filter((name) => name !== run().name).map((name) => runs.find((each) => each.name === name));
  return [run(), ...chosen.filter((each) => choice.split in each.traces && choice.unit in each.costs)];
}

function distinct({ cost, accuracy }) {
  const keep = Array.from(cost.keys()).filter((k) => k + 1 === cost.length || cost[k + 1] > cost[k] * (1 + 1e-12));
  return [keep.map((k) => cost[k]), keep.map((k) => 100 * accuracy[k])];
}

function showTradeOff() {
  const shown = comparedRuns().filter((each) => shownClient() === null || trace(each).clients.includes(shownClient()));
  const lines = shown.map((each, number) => {
    const [x, y] = distinct(curveOf(each, shownClient()));
    return { name: each.name, x, y, look: number, width: number ? 2 : 3, points: x.length < 3 };
  });
  const place = byId("trade-off-plot");
  const drawn = chart(place, lines, {
    x: "mean " + choice.unit + " per sample", y: "accuracy (%)", height: Math.max(280, Math.min(430, innerHeight - 160)),
    xText: compact, yText: (value) => Number(value.toFixed(2)), hooks: { draw: [() => placeHandle()] },
  });
  showAnswers();
  drawn.over.append(handle);
  drawn.over.addEventListener("pointerdown", (event) => {
    drawn.over.setPointerCapture(event.pointerId);
    handle.focus({ preventScroll: true });
    dragTo(drawn, event);
    const move = (moved) => dragTo(drawn, moved);
    const end = () => { drawn.over.removeEventListener("pointermove", move); };
    drawn.over.addEventListener("pointermove", move);
    drawn.over.addEventListener("pointerup", end, { once: true });
    drawn.over.addEventListener("pointercancel", end, { once: true });
  });
  showLive();
}

function dragTo(drawn, event) {
  const box = drawn.over.getBoundingClientRect();
  setLevel(nearest(curveOf(run(), shownClient()), drawn.posToVal(event.clientX - box.left, "x")));
}

handle.addEventListener("keydown", (event) => {
  const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 50, PageDown: -50, Home: -GRID.length, End: GRID.length };
  if (!(event.key in steps)) return;
  event.preventDefault();
  setLevel(shownLevel() + steps[event.key]);
});

// Other methods at the same cost

function showEqual(found) {
  const exits = Math.max(...comparedRuns().map((each) => costs(each).length));
  byId("equal-hint").textContent = "Each method with one threshold, the largest that costs at most " + quantity(found.meanCost, choice.unit) + " per sample on average; up to six.";
  byId("equal").tHead.replaceChildren(element("tr", {}, ...["method", "accuracy", "worst tenth", "threshold", "cost", "leaving at exit 1 to " + exits].map((text) => element("th", { textContent: text }))));
  byId("equal").tBodies[0].replaceChildren(...comparedRuns().map((each, number) => {
    const own = number === 0, level = own ? 0 : within(curveOf(each), found.meanCost);
    const swatch = element("span", { className: "swatch" });
    swatch.style.borderColor = colour(number);
    swatch.style.borderTopStyle = number % 6 ? "dashed" : "solid";
    const name = element("td", {}, swatch, each.name);
    if (level < 0) return element("tr", {}, name, element("td", { colSpan: 5, textContent: "exit 1 alone costs more: " + quantity(costs(each)[0], choice.unit) }));
    const there = own ? found : simulate(trace(each), costs(each), () => new Array(costs(each).length - 1).fill(level));
    const bar = element("div", { className: "shares small" });
    bar.setAttribute("role", "img");
    shareBar(bar, there.shares);
    const says = own ? { shared: String(GRID[choice.level]), exits: "per exit", client: "per client" }[choice.mode] : String(GRID[level]);
    const cells = [percent(there.meanAccuracy), percent(worstTenth(there.accuracy)), says, quantity(there.meanCost, choice.unit)];
    return element("tr", {}, name, ...cells.map((text) => element("td", { textContent: text })), element("td", {}, bar));
  }));
}

function showPicks() {
  const full = choice.compared.length >= MOST_COMPARED;
  byId("picks").replaceChildren(...runs.filter(canExit).map((each) => {
    const box = element("input", { type: "checkbox", value: each.name, checked: choice.compared.includes(each.name) || each === run() });
    box.disabled = each === run() || (full && !box.checked);
    box.addEventListener("change", () => {
      choice.compared = box.checked ? [...choice.compared, each.name] : choice.compared.filter((name) => name !== each.name);
      showPicks();
      byId("picks").querySelector(`input[value="${CSS.escape(each.name)}"]`)?.focus();
      redraws.forEach((draw) => draw());
    });
    return element("label", {}, box, each.name);
  }));
}

function activate(index) {
  choice.active = index;
  const each = run(), splits = Object.keys(each.traces), units = Object.keys(each.costs);
  if (!splits.includes(choice.split)) choice.split = splits[0];
  if (!units.includes(choice.unit)) choice.unit = units[0];
  choice.exitLevels = new Array(each.costs.MACs.length - 1).fill(choice.level);
  choice.clientLevels = new Map();
  choice.client = trace().clients[0];
  if (!choice.compared.includes(each.name)) choice.compared = [each.name, ...choice.compared].slice(0, MOST_COMPARED);
  options(byId("split"), splits.map((split) => [split, split]), choice.split);
  options(byId("unit"), units.map((unit) => [unit, unit]), choice.unit);
  for (const [id, all] of [["split", splits], ["unit", units]]) byId(id).parentElement.style.display = all.length > 1 ? "" : "none";
  showPicks();
}

function startTradeOff() {
  const able = runs.map((each, index) => [index, each]).filter(([, each]) => canExit(each));
  if (!able.length) {
    byId("trade-off").replaceChildren(element("h2", { textContent: "Accuracy against cost" }), element("p", { textContent: "None of the runs has exit traces and more than one exit." }));
    return;
  }
  choice.level = GRID.findIndex((value) => value >= 0.8);
  choice.compared = able.slice(0, MOST_COMPARED).map(([, each]) => each.name);
  const [first] = able.find(([, each]) => each.method === "xfed") ?? able[0];
  options(byId("active"), able.map(([index, each]) => [index, each.name]), first);
  activate(first);
  byId("active").addEventListener("change", () => { activate(Number(byId("active").value)); showThresholds(); redraws.forEach((draw) => draw()); });
  byId("split").addEventListener("change", () => { choice.split = byId("split").value; choice.client = trace().clients[0]; showThresholds(); showTradeOff(); });
  byId("unit").addEventListener("change", () => { choice.unit = byId("unit").value; showTradeOff(); });
  byId("mode").addEventListener("change", (event) => {
    choice.mode = event.target.value;
    if (choice.mode === "exits") choice.exitLevels = new Array(costs().length - 1).fill(choice.level);
    showThresholds();
    showTradeOff();
  });
  byId("download").addEventListener("click", download);
  showThresholds();
  keepDrawn("trade-off", showTradeOff);
}
