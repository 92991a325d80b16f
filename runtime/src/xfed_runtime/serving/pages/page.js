// The page for a person: a picture or a text, a budget, and what each exit answers.
const $ = (id) => document.getElementById(id);
const pad = $("pad"), pen = pad.getContext("2d", { willReadFrequently: true });
let bundle, shape, waiting, asked = 0, something = false;

async function call(path, body) {
  const headers = { "content-type": "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  const content = await answer.json();
  if (answer.status === 401) $("door").hidden = false;
  if (!answer.ok) throw new Error(content.detail);
  return content;
}

function tell(error) {
  $("problem").hidden = !error;
  $("problem").textContent = error ? error.message : "";
}

async function start() {
  try {
    bundle = await call("/bundle");
  } catch (error) {
    $("about").textContent = "";
    return tell(error);
  }
  tell();
  $("door").hidden = true;
  $("main").hidden = false;
  $("about").textContent = `Bundle ${bundle.bundle}: ${bundle.classes.length} classes, ${bundle.exits.length} exits. `
    + "Easy inputs leave early; the budget says how much an answer may cost on average.";
  $("client").replaceChildren(...bundle.clients.map((client) => new Option(client, client)));
  $("client").value = bundle.default_client ?? bundle.policies_of;
  $("budget").min = Math.ceil(100 * bundle.exits[0].share);
  setUpInput();
  showBudget();
}

// What the network takes: pictures of one or three channels, texts, or something that only programs can give.
function setUpInput() {
  const [first] = bundle.inputs.anyOf ?? [bundle.inputs];
  if (first.type === "string") {
    $("writing").hidden = false;
    $("invert-label").hidden = true;
    return;
  }
  shape = [];
  for (let level = first; level.type === "array"; level = level.items) shape.push(level.maxItems);
  if (shape.length !== 3 || ![1, 3].includes(shape[0])) {
    tell(new Error("this network takes numbers that are no picture; ask it by POST /predict"));
    return;
  }
  const [, height, width] = shape;
  pad.height = Math.round((pad.width * height) / width);
  $("size").textContent = `${width} × ${height}`;
  $("picture").hidden = false;
  const signs = bundle.classes.filter((name) => name.length === 1).slice(0, 10);
  const samples = signs.length ? signs.map((sign) => [sign, () => paintSign(sign)]) : [["landscape", paintLandscape]];
  $("samples").replaceChildren(...[...samples, ["noise", paintNoise]].map(([name, paint]) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    button.addEventListener("click", () => { clear(); paint(); changed(); });
    return button;
  }));
  clear();
}

function clear() {
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, pad.width, pad.height);
}

function paintSign(sign) {
  pen.fillStyle = "#fff";
  pen.font = `600 ${pad.height}px sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(sign, pad.width / 2, pad.height * 0.53);
}

function paintLandscape() {
  const sky = pen.createLinearGradient(0, 0, 0, pad.height);
  for (const [at, colour] of [[0, "#6fb1e8"], [0.6, "#f4d6a0"], [0.601, "#3f7d3a"], [1, "#22491f"]]) sky.addColorStop(at, colour);
  pen.fillStyle = sky;
  pen.fillRect(0, 0, pad.width, pad.height);
  pen.fillStyle = "#fff3b0";
  pen.beginPath();
  pen.arc(pad.width * 0.7, pad.height * 0.3, pad.width * 0.1, 0, 7);
  pen.fill();
}

function paintNoise() {
  const picture = pen.createImageData(pad.width, pad.height);
  for (let at = 0; at < picture.data.length; at++) picture.data[at] = at % 4 === 3 ? 255 : Math.random() * 256;
  pen.putImageData(picture, 0, 0);
}

// The largest middle part of a picture that has the network's proportions.
async function take(file) {
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.max(pad.width / picture.width, pad.height / picture.height);
    const width = picture.width * scale, height = picture.height * scale;
    clear();
    pen.imageSmoothingQuality = "high";
    pen.drawImage(picture, (pad.width - width) / 2, (pad.height - height) / 2, width, height);
    changed();
  } catch {
    tell(new Error(`${file.name || "this"} is no picture that the browser can read`));
  }
}

// As the network takes it: few pixels, one byte a channel, channels first.
function pixels() {
  const [channels, height, width] = shape;
  const small = new OffscreenCanvas(width, height).getContext("2d");
  small.imageSmoothingQuality = "high";
  small.drawImage(pad, 0, 0, width, height);
  const { data } = small.getImageData(0, 0, width, height);
  const top = topOfRange(), light = (value) => ($("invert").checked ? 255 - value : value) * top / 255;
  const planes = Array.from({ length: channels }, (_, channel) => Array.from({ length: height }, (_, y) =>
    Array.from({ length: width }, (_, x) => {
      const at = 4 * (y * width + x);
      const grey = 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
      return +light(channels === 1 ? grey : data[at + channel]).toFixed(3);
    })));
  return planes;
}

function topOfRange() {
  let [level] = bundle.inputs.anyOf ?? [bundle.inputs];
  while (level.type === "array") level = level.items;
  return level.maximum ?? 1;
}

// By a policy that was calibrated for the budget where the bundle has one, else by the last exit within it.
function wish() {
  const share = Number($("budget").value);
  if (Object.values(bundle.policies).some((known) => known.macs !== null)) return { budget: `${share}%` };
  const within = bundle.exits.filter((exit) => 100 * exit.share <= share);
  return { policy: { kind: "fixed", exit: Math.max(1, within.length) } };
}

function changed() {
  something = true;
  clearTimeout(waiting);
  waiting = setTimeout(ask, 60);
}

async function ask() {
  const number = ++asked;
  const input = shape ? pixels() : $("text").value;
  if (!shape && !input.trim()) return;
  try {
    const got = await call("/predict", { client: Number($("client").value), inputs: [input], explain: true, ...wish() });
    if (number === asked) show(got);
  } catch (error) {
    if (number === asked) tell(error);
  }
}

function show({ answers: [answer], policy }) {
  tell();
  $("name").textContent = answer.class;
  $("sure").textContent = `${percent(answer.confidence)} sure, by exit ${answer.exit} of ${answer.exits.length}; `
    + `the policy: ${inWords(policy)}`;
  $("exits").hidden = false;
  $("exits").tBodies[0].replaceChildren(...answer.exits.map((exit) => row(exit, answer)));
}

function row(exit, answer) {
  const line = document.createElement("tr");
  line.className = exit.exit === answer.exit ? "taken" : exit.exit > answer.exit ? "spared" : "";
  const last = answer.exits.at(-1).macs;
  for (const text of [exit.exit, exit.class, "", milliseconds(exit.ms), percent(exit.macs / last)]) {
    line.insertCell().textContent = text;
  }
  if (line.className) {
    const tag = document.createElement("span");
    tag.className = line.className === "taken" ? "tag" : "quiet";
    tag.textContent = line.className === "taken" ? "answers" : "not needed";
    line.cells[1].append(" ", tag);
  }
  const bar = line.cells[2].appendChild(document.createElement("div"));
  bar.className = "bar";
  const track = bar.appendChild(document.createElement("div"));
  track.appendChild(document.createElement("i")).style.width = `${100 * exit.confidence}%`;
  bar.append(percent(exit.confidence));
  return line;
}

const percent = (share) => `${Math.round(100 * share)} %`;
const milliseconds = (time) => `${time.toPrecision(2)} ms`;

function inWords(policy) {
  if (policy.kind === "fixed") return `always exit ${policy.exit}`;
  if (policy.kind === "patience") return `${policy.patience + 1} exits that agree`;
  const [sign, thresholds] = [policy.kind === "entropy" ? "<" : ">", [policy.threshold].flat()];
  return `${policy.kind} ${sign} ${thresholds.map((value) => +value.toFixed(3)).join(", ")}`;
}

function showBudget() {
  const share = Number($("budget").value);
  const within = bundle.exits.filter((exit) => 100 * exit.share <= share).length;
  $("share").textContent = `${share} %`;
  $("bought").textContent = `of the whole network's computation, on average: enough for exit ${within} every time`;
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value);
  start();
});
$("budget").addEventListener("input", () => { showBudget(); if (something) changed(); });
$("client").addEventListener("change", async () => {
  try {
    bundle = await call(`/bundle?client=${$("client").value}`);
    if (something) changed();
  } catch (error) {
    tell(error);
  }
});
$("invert").addEventListener("change", () => { if (something) changed(); });
$("text").addEventListener("input", changed);
$("choose").addEventListener("click", () => $("file").click());
$("clear").addEventListener("click", clear);
$("file").addEventListener("change", () => { if ($("file").files[0]) take($("file").files[0]); $("file").value = ""; });

for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    pad.classList.toggle("over", kind === "dragover");
    if (kind === "drop" && shape && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
}
document.addEventListener("paste", (event) => {
  if (shape && event.clipboardData.files[0]) take(event.clipboardData.files[0]);
});

pad.addEventListener("pointerdown", (event) => {
  pad.setPointerCapture(event.pointerId);
  pen.beginPath();
  draw(event);
});
pad.addEventListener("pointermove", (event) => { if (event.buttons) draw(event); });
function draw(event) {
  const at = pad.getBoundingClientRect(), scale = pad.width / at.width;
  Object.assign(pen, { strokeStyle: $("invert").checked ? "#000" : "#fff", lineCap: "round", lineJoin: "round", lineWidth: pad.width / 11 });
  pen.lineTo((event.clientX - at.left) * scale, (event.clientY - at.top) * scale);
  pen.stroke();
  changed();
}

start();
