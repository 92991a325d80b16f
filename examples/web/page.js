import { open, walk, within } from "./walk.js";

const $ = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const pad = $("pad"), pen = pad.getContext("2d", { willReadFrequently: true });
const percent = (share) => `${Math.round(100 * share)} %`;

const client = asked.get("client") ?? "0";
const network = await open(asked.get("bundle") ?? "bundle", client);
$("about").textContent = `Client ${client}: ${network.classes.length} classes, ${network.stages.length} exits, all computed here.`;
$("budget").min = Math.ceil((100 * network.macs[0]) / network.macs.at(-1));
clear();

// What the network sees: few pixels, channels first, from 0 to the top of its range.
function pixels() {
  const [channels, height, width] = network.inputs.shape;
  const small = new OffscreenCanvas(width, height).getContext("2d");
  small.imageSmoothingQuality = "high";
  small.drawImage(pad, 0, 0, width, height);
  const { data } = small.getImageData(0, 0, width, height);
  const value = (channel, at) => (channels === 1 ? (data[4 * at] + data[4 * at + 1] + data[4 * at + 2]) / 3 : data[4 * at + channel]);
  return Float32Array.from({ length: channels * height * width }, (_, at) =>
    (value(Math.floor(at / (height * width)), at % (height * width)) * network.inputs.scale) / 255);
}

let again = null, busy = false;
async function ask() {
  if (busy) { again = ask; return; }
  busy = true;
  const share = Number($("budget").value) / 100;
  $("share").textContent = percent(share);
  try {
    $("exits").replaceChildren();
    const answer = await walk(network, pixels(), within(network, share), (passed) => row(passed));
    $("exits").lastChild.className = "taken";
    $("answer").textContent = `${best(answer)}, by exit ${answer.exit} of ${network.stages.length}`;
  } catch (error) {
    $("answer").textContent = error.message;
  }
  busy = false;
  [again] = [null, again?.()];
}

const best = ({ probabilities }) => network.classes[probabilities.indexOf(Math.max(...probabilities))];

function row(passed) {
  const line = $("exits").insertRow();
  const cost = percent(passed.macs / network.macs.at(-1));
  for (const text of [passed.exit, best(passed), percent(Math.max(...passed.probabilities)), `${passed.ms.toFixed(1)} ms`, cost]) {
    line.insertCell().textContent = text;
  }
}

function clear() {
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, pad.width, pad.height);
}

for (const sign of [...network.classes.filter((name) => name.length === 1), "clear"]) {
  const button = $("samples").appendChild(document.createElement("button"));
  button.textContent = sign;
  button.addEventListener("click", () => {
    clear();
    Object.assign(pen, { fillStyle: "#fff", font: "600 280px sans-serif", textAlign: "center", textBaseline: "middle" });
    if (sign !== "clear") { pen.fillText(sign, 140, 148); ask(); }
  });
}
$("budget").addEventListener("input", ask);
pad.addEventListener("pointerdown", (event) => { pad.setPointerCapture(event.pointerId); pen.beginPath(); });
pad.addEventListener("pointermove", (event) => {
  if (!event.buttons) return;
  Object.assign(pen, { strokeStyle: "#fff", lineCap: "round", lineWidth: 25 });
  pen.lineTo((event.offsetX * pad.width) / pad.clientWidth, (event.offsetY * pad.width) / pad.clientWidth);
  pen.stroke();
  ask();
});
document.documentElement.dataset.ready = "yes";
