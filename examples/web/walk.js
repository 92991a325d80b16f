// A bundle in the browser: a client's stages one after the other, until an exit is sure enough.
import * as ort from "onnxruntime-web";

// Fetch a file of the bundle and make sure that it is the one the manifest vouches for.
async function file(root, manifest, name) {
  const content = await (await fetch(`${root}/${name}`)).arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (found !== manifest.files[name].sha256) throw new Error(`${name} is not what bundle.json vouches for`);
  return new Uint8Array(content);
}

export async function open(root, client) {
  const manifest = await (await fetch(`${root}/bundle.json`)).json();
  const { networks, weights, policies } = manifest.clients[client];
  const get = (name) => file(root, manifest, name);
  const beside = ["networks/weights.bin", weights].filter((name) => name in manifest.files);
  const externalData = await Promise.all(beside.map(async (name) => ({ path: name.split("/").at(-1), data: await get(name) })));
  const stages = [];
  for (const graph of networks["onnx-stages"]) stages.push(await ort.InferenceSession.create(await get(graph), { externalData }));
  const [everyone, own] = await Promise.all([manifest.policies, policies].map(async (name) => JSON.parse(new TextDecoder().decode(await get(name)))));
  return { ...manifest, stages, policies: { ...everyone, ...own } };
}

// The policy that a budget buys: the most accurate one within it, of equal ones the cheapest.
export function within({ policies, macs }, share) {
  const { answer } = policies.default.policy;
  const fitting = Object.values(policies).filter((known) => known.policy.answer === answer && known.macs !== null
    && known.macs <= share * macs.at(-1) * (1 + 1e-9));
  const merit = (known) => (known.accuracy === null ? [-1, known.macs] : [known.accuracy, -known.macs]);
  fitting.sort((a, b) => merit(b)[0] - merit(a)[0] || merit(b)[1] - merit(a)[1]);
  if (!fitting.length) throw new Error(`no policy of the bundle keeps to ${Math.round(100 * share)} %`);
  return fitting[0].policy;
}

// The walk. `passed` hears of every exit as it comes; what lies behind the exit that answers is not computed.
export async function walk(network, pixels, policy, passed = () => {}) {
  const { shape, scale, mean, std } = network.inputs, began = performance.now();
  const of = (number, index) => (Array.isArray(number) ? number[Math.floor(index / (shape[1] * shape[2]))] : number);
  const normalised = Float32Array.from(pixels, (value, i) => (value / scale - of(mean, i)) / of(std, i));
  let state = [new ort.Tensor("float32", normalised, [1, ...shape])];
  let sum = null, weight = 0;
  for (const [index, stage] of network.stages.entries()) {
    const out = await stage.run(Object.fromEntries(stage.inputNames.map((name, at) => [name, state[at]])));
    state = stage.outputNames.map((name) => out[name]);
    const own = softmax(state.pop().data);
    weight += index + 1;
    sum = own.map((value, at) => value * (index + 1) + (sum ? sum[at] : 0));
    const probabilities = policy.answer === "running" ? sum.map((value) => value / weight) : own;
    const answer = { exit: index + 1, probabilities, ms: performance.now() - began, macs: network.macs[index] };
    passed(answer);
    if (index === network.stages.length - 1 || leaves(policy, index, probabilities)) return answer;
  }
}

function softmax(logits) {
  const most = Math.max(...logits), powers = Array.from(logits, (value) => Math.exp(value - most));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / total);
}

function leaves({ kind, threshold, exit, enabled }, index, probabilities) {
  if (enabled && !enabled[index]) return false;
  if (kind === "fixed") return exit === index + 1;
  const limit = Array.isArray(threshold) ? threshold[index] : threshold, [first, second] = [...probabilities].sort((a, b) => b - a);
  if (kind === "confidence") return first > limit;
  if (kind === "margin") return first - second > limit;
  if (kind === "entropy") return -probabilities.reduce((total, p) => total + (p > 0 ? p * Math.log(p) : 0), 0) < limit;
  throw new Error(`this example knows no policy of kind ${kind}`);
}
