// Early exit, simulated on a run's trace. A code says how many thresholds of the grid a confidence exceeds, so
// confidence > GRID[k] exactly where code > k: the page decides as the policy file would.

// Follows every sample; `levels(client)` gives the places on the grid by exit. In means, clients count
// by how many they stand for: all alike, unless a sample was evaluated.
function simulate(trace, costs, levels) {
  const exits = costs.length;
  const clients = trace.counts.length;
  const accuracy = new Float64Array(clients), cost = new Float64Array(clients);
  const shares = new Float64Array(exits), everyone = sum(trace.weights);
  let i = 0;
  for (let c = 0; c < clients; c++) {
    const level = levels(trace.clients[c]), taken = new Float64Array(exits), end = i + trace.counts[c];
    let right = 0;
    for (; i < end; i++) {
      let exit = 0;
      while (exit < exits - 1 && trace.codes[exit][i] <= level[exit]) exit++;
      taken[exit]++;
      right += (trace.right[i] >>> exit) & 1;
    }
    const samples = trace.counts[c];
    accuracy[c] = right / samples;
    for (let j = 0; j < exits; j++) {
      cost[c] += (costs[j] * taken[j]) / samples;
      shares[j] += (trace.weights[c] * taken[j]) / samples / everyone;
    }
  }
  return { accuracy, cost, shares, meanAccuracy: mean(accuracy, trace.weights), meanCost: mean(cost, trace.weights) };
}

// Cost and accuracy at every place of the grid, for one threshold at all exits; `only` restricts to one client.
// A sample moves one exit on where the threshold reaches the largest code so far.
function curve(trace, costs, only = null) {
  const cost = new Float64Array(GRID.length), accuracy = new Float64Array(GRID.length);
  const everyone = sum(trace.weights);
  let i = 0;
  for (let c = 0; c < trace.counts.length; c++) {
    const end = i + trace.counts[c];
    if (only !== null && trace.clients[c] !== only) { i = end; continue; }
    const weight = (only === null ? trace.weights[c] / everyone : 1) / trace.counts[c];
    for (; i < end; i++) {
      cost[0] += weight * costs[0];
      accuracy[0] += weight * (trace.right[i] & 1);
      let reached = 0;
      for (let j = 0; j + 1 < costs.length; j++) {
        reached = Math.max(reached, trace.codes[j][i]);
        cost[reached] += weight * (costs[j + 1] - costs[j]);
        accuracy[reached] += weight * (((trace.right[i] >>> (j + 1)) & 1) - ((trace.right[i] >>> j) & 1));
      }
    }
  }
  for (let k = 1; k < GRID.length; k++) {
    cost[k] += cost[k - 1];
    accuracy[k] += accuracy[k - 1];
  }
  return { cost, accuracy };
}

// The largest threshold whose mean cost is within the budget; -1 where even exit 1 costs more.
function within(found, budget) {
  let low = -1, high = GRID.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (found.cost[middle] <= budget * (1 + 1e-9)) low = middle;
    else high = middle - 1;
  }
  return low;
}

// The threshold whose mean cost comes nearest.
function nearest(found, cost) {
  const below = Math.max(0, within(found, cost));
  const above = Math.min(GRID.length - 1, below + 1);
  return Math.abs(found.cost[above] - cost) < Math.abs(found.cost[below] - cost) ? above : below;
}
