// Start: unpack, then show.

openBlock().then((block) => {
  runs = unpack(DATA.runs, block);
  const data = new Set(runs.map((each) => each.data)), first = runs[0];
  byId("about").textContent = runs.length + (runs.length === 1 ? " run" : " runs") + " on " + Array.from(data).join("; ") + "; " + first.clients + " clients, " + first.rounds + " rounds. " + sampling() + "Made by xfed " + DATA.version + ".";
  startTradeOff();
  startSections();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  addEventListener("resize", redrawAll);
  document.documentElement.dataset.ready = "yes";
}).catch((error) => {
  byId("about").textContent = "This page cannot be shown: " + error.message;
});
