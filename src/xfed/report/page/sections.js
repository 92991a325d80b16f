// Everything below the centre piece.

// Summary table

const columns = () => {
  const exits = Math.max(...runs.map((each) => each.exits.length));
  return [
    ["run", (r) => r.name, (v) => v],
    ["accuracy", (r) => r.mean, (v) => percent(v)],
    ["± clients", (r) => r.std, (v) => percent(v)],
    ["worst tenth", (r) => worstTenth(averaged(r)), (v) => percent(v)],
    ["last5", (r) => r.last5, (v) => percent(v)],
    ["best", (r) => r.best, (v) => percent(v)],
    ...Array.from({ length: exits }, (_, j) => ["exit " + (j + 1), (r) => r.exits[j] ?? null, (v) => percent(v)]),
    ["down", (r) => r.down, (v) => quantity(v, "B")],
    ["up", (r) => r.up, (v) => quantity(v, "B")],
    ["training", (r) => r.macs, (v) => quantity(v, "MAC")],
    ["client keeps", (r) => r.clientState, (v) => quantity(v, "B")],
    ["time", (r) => r.seconds, (v) => (v < 90 ? v.toFixed(1) + " s" : (v / 60).toFixed(1) + " min")],
  ];
};

// A client's accuracy, averaged over its exits.
const averaged = (each) => Array.from(each.perClient[0], (_, c) => mean(each.perClient.map((exit) => exit[c])));

// What must be said where not all clients were evaluated.
function sampling() {
  const sampled = runs.filter((each) => each.perClient[0].length < each.clients);
  if (!sampled.length) return "";
  const said = sampled.map((each) => each.name + ": " + each.perClient[0].length).join(", ");
  return "Evaluated was a sample of the clients (" + said + "). In means, each counts for the clients that it stands for; worst tenths and clients sorted by accuracy are unweighted, over the clients evaluated. ";
}

let sorting = { column: 1, falling: true };

function showSummary() {
  const all = columns(), table = byId("summary"), [, value] = all[sorting.column];
  const order = runs.slice().sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const less = x === null ? -1 : y === null ? 1 : typeof x === "string" ? x.localeCompare(y) : x - y;
    return sorting.falling ? -less : less;
  });
  table.tHead.replaceChildren(element("tr", {}, ...all.map(([name], index) => {
    const head = element("th", {}, element("button", { type: "button", textContent: name }));
    if (index === sorting.column) head.setAttribute("aria-sort", sorting.falling ? "descending" : "ascending");
    head.firstChild.addEventListener("click", () => {
      sorting = { column: index, falling: index === sorting.column ? !sorting.falling : index > 0 };
      showSummary();
      table.tHead.querySelectorAll("button")[index].focus();
    });
    return head;
  })));
  const trivial = element("tr", {}, element("td", { textContent: "majority class" }), element("td", { textContent: percent(mean(runs.map((each) => each.majority))) }), element("td", { colSpan: all.length - 2 }));
  table.tBodies[0].replaceChildren(...order.map((each) => element("tr", {}, ...all.map(([, read, write]) => {
    const found = read(each);
    return element("td", { textContent: found === null ? "–" : write(found) });
  }))), trivial);
}

// Over rounds

function showRounds() {
  const what = byId("rounds-what").value, lines = [];
  if (what.startsWith("run ")) {
    const each = runs[Number(what.slice(4))];
    each.evaluations.exits.forEach((values, j) => lines.push({ name: "exit " + (j + 1), x: each.evaluations.round, y: values.map((v) => 100 * v), look: j, points: true }));
  } else {
    shownRuns().forEach((each, number) => {
      const series = each.evaluations.exits;
      const exit = what === "averaged" ? null : Number(what.slice(5)) - 1;
      if (exit !== null && exit >= series.length) return;
      const values = Array.from(each.evaluations.round, (_, i) => 100 * (exit === null ? mean(series.map((one) => one[i])) : series[exit][i]));
      lines.push({ name: each.name, x: each.evaluations.round, y: values, look: number, points: true });
    });
  }
  if (lines.length) chart(byId("rounds-plot"), lines, { x: "round", y: "accuracy (%)", yText: (value) => Number(value.toFixed(2)) });
}

// The compared runs, the active one first; where nothing can be compared, the first six.
function shownRuns() {
  const chosen = runs.some(canExit) ? comparedRuns() : [];
  return chosen.length ? chosen : runs.slice(0, MOST_COMPARED);
}

// Clients

function showClients() {
  const what = byId("clients-what").value;
  const lines = shownRuns().map((each, number) => {
    let values = what === "averaged" ? averaged(each) : null;
    if (what === "threshold") {
      if (!canExit(each)) return null;
      const level = each === run() ? null : within(curveOf(each), outcome().meanCost);
      if (level !== null && level < 0) return null;
      const chosen = level === null ? levels : () => new Array(costs(each).length - 1).fill(level);
      values = simulate(trace(each), costs(each), chosen).accuracy;
    } else if (what !== "averaged") values = each.perClient[Number(what.slice(5)) - 1];
    if (!values) return null;
    const sorted = Array.from(values, (value) => 100 * value).sort((a, b) => a - b);
    return { name: each.name, x: sorted.map((_, i) => (100 * (i + 1)) / sorted.length), y: sorted, look: number, points: sorted.length < 40 };
  }).filter((line) => line);
  if (!lines.length) return;
  const shadeWorst = (drawn) => {
    const { ctx, bbox } = drawn, right = drawn.valToPos(10, "x", true);
    ctx.fillStyle = css("--shade");
    ctx.fillRect(bbox.left, bbox.top, right - bbox.left, bbox.height);
  };
  chart(byId("clients-plot"), lines, {
    x: "clients (%), worst first", y: "accuracy (%)", hooks: { drawClear: [shadeWorst] },
    xText: (value) => value.toFixed(0), yText: (value) => Number(value.toFixed(2)), axes: { x: { range: [0, 100] } },
  });
}

function showClasses() {
  const each = shownRuns().find((one) => one.counts);
  byId("classes").style.display = each ? "" : "none";
  if (!each) return;
  const { clients, counts } = each.counts, classes = each.classes.length;
  byId("classes-hint").textContent = "Rows are classes, columns clients; counted over the samples whose labels " + each.name + " keeps (" + Object.keys(each.traces).join(" and ") + ").";
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  heatMap(byId("classes-plot"), {
    rows: classes, columns: clients.length, most: Math.sqrt(most), mostText: most + " samples (square-root scale)",
    value: (i, j) => Math.sqrt(counts[j * classes + i]), label: "samples of each class by client",
    tell: (i, j) => "client " + clients[j] + ", class " + each.classes[i] + ": " + counts[j * classes + i] + " samples",
  });
}

// Teachers and selected exits

const noting = () => runs.map((each, index) => [index, each]).filter(([, each]) => each.notes);

function showTeachers() {
  const each = runs[Number(byId("teachers-run").value)], { matrices, selected, selectedRounds } = each.notes;
  const slide = byId("teachers-round");
  slide.max = Math.max(0, matrices.length - 1);
  if (matrices.length) {
    const shown = matrices[Math.min(slide.valueAsNumber, matrices.length - 1)], { students, teachers, weights } = shown;
    byId("teachers-said").textContent = "round " + shown.round;
    slide.setAttribute("aria-valuetext", "round " + shown.round);
    heatMap(byId("teachers-plot"), {
      rows: students.length, columns: teachers.length, most: 255, mostText: "weight 1", label: "teacher weights in round " + shown.round + ", a row per student",
      value: (i, j) => weights[i * teachers.length + j],
      tell: (i, j) => "client " + students[i] + " learns from client " + teachers[j] + ": weight " + (weights[i * teachers.length + j] / 255).toFixed(2),
    });
  } else byId("teachers-plot").textContent = "no weights noted";
  const exits = selectedRounds.length ? selected.length / selectedRounds.length : 0;
  if (exits) {
    heatMap(byId("selected-plot"), {
      rows: exits, columns: selectedRounds.length, most: 1, mostText: "all", label: "a row per exit, a column per round",
      value: (i, j) => selected[j * exits + i],
      tell: (i, j) => "round " + selectedRounds[j] + ", exit " + (i + 1) + ": " + percent(selected[j * exits + i], 0) + " of the participants",
    });
  }
}

// Communication and computation

function showCosts() {
  const lines = (read) => shownRuns().map((each, number) => {
    const y = read(each.records);
    return { name: each.name, x: Array.from(y, (_, i) => i + 1), y, look: number };
  });
  const text = (unit) => ({ x: "round", y: "", height: 260, yText: (value) => compact(value) + unit });
  chart(byId("bytes-plot"), lines((r) => Array.from(r.bytes_down, (value, i) => value + r.bytes_up[i])), text("B"));
  chart(byId("macs-plot"), lines((r) => Array.from(r.macs)), text("MAC"));
}

function startSections() {
  showSummary();
  const exits = Math.max(...runs.map((each) => each.exits.length));
  const numbered = Array.from({ length: exits }, (_, j) => ["exit " + (j + 1), "exit " + (j + 1)]);
  const single = runs.map((each, index) => ["run " + index, "all exits of " + each.name]);
  options(byId("rounds-what"), [["averaged", "compared methods, averaged over exits"], ...numbered.map(([v, t]) => [v, "compared methods, " + t]), ...single], "run " + choice.active);
  byId("rounds-what").addEventListener("change", showRounds);
  keepDrawn("rounds", showRounds);
  options(byId("clients-what"), [...(runs.some(canExit) ? [["threshold", "under the threshold, at equal cost"]] : []), ["averaged", "averaged over exits"], ...numbered]);
  byId("clients-what").addEventListener("change", showClients);
  keepDrawn("clients", showClients);
  keepDrawn("classes", showClasses);
  if (noting().length) {
    options(byId("teachers-run"), noting().map(([index, each]) => [index, each.name]));
    byId("teachers-round").max = 1e6;
    byId("teachers-round").value = 1e6;
    byId("teachers-run").addEventListener("change", showTeachers);
    byId("teachers-round").addEventListener("input", showTeachers);
    keepDrawn("teachers", showTeachers);
  } else byId("teachers").remove();
  keepDrawn("costs", showCosts);
}
