// A block of attention, opened: the heat map, the heads, what they were measured to do, and what-ifs.

/* Returns the measured roles of heads: none of other checkpoints. */
const roles = () => models[data.checkpoints.length] === model && data.measured?.roles || [];
const rolesOf = (kind, layer, h) => roles().filter(role => role.kind === kind && role.layer === layer + 1 && role.head === h + 1);

const thousandths = weights => weights.map(row => Array.from(row, w => 1000 * w));

/* Chooses the head of a block. */
const chooseHead = (block, h) => go(kindOf(block) === "cross" ? { head: String(h), layer: String(layerIn(block)) } : { own: String(h) });

function drawAttention(root, block) {
  const both = make("div", undefined, root, "both");
  const left = make("div", undefined, both);
  const right = make("div", undefined, both);
  const h = headIn(block);
  const kind = kindOf(block);
  const { queries, keys } = sidesOf(block);
  const weights = weightsOf(block);
  const table = make("table", undefined, make("div", undefined, left, "scroll"), "matrix");
  table.setAttribute("aria-label", "attention weights, in per cent; rows look at columns");
  const read = make("output", "A row adds up to 100 %. Point at a cell, or use the arrow keys.", left, "key");
  heatmap(table, { queries, keys, weights: thousandths(weights), isMasked: (t, s) => kind === "decoder" && s > t && !isOff("mask"),
    point(t, s) {
      if (kind !== "encoder") look({ t });
      const { value, index } = s === undefined ? strongest(weights[t]) : { value: weights[t][s], index: s };
      read.textContent = `“${queries[t]}” looks at “${keys[index]}”: ${exact(value)}`;
    } });
  table.addEventListener("pointerleave", () => look({}));

  const heads = make("div", undefined, right, "heads");
  heads.setAttribute("role", "group");
  heads.setAttribute("aria-label", "heads");
  const rgb = colour(kind).match(/[\d.]+/g).slice(0, 3).map(part => /^color/.test(colour(kind)) ? 255 * part : +part);
  for (const n of ["mean", ...range(data.config.h)]) {
    const one = button(heads, "", () => chooseHead(block, n), `head ${n}`);
    one.setAttribute("aria-pressed", n === h);
    thumbnail(one, weightsOf(block, n).map(row => Array.from(row, w => 1000 * Math.sqrt(w))), rgb);
    make("span", n === "mean" ? "mean" : `head ${n + 1}`, one);
  }
  tellRole(make("p", undefined, right, "fact"), kind, block, h);
  drawRoles(right, block);
  const own = h === "mean" ? [] : [headSwitch("out", block, h), headSwitch("only", block, h)];
  whatIf(right, ["scale", ...kind === "decoder" ? ["mask"] : [], ...own]);
}

const strongest = row => {
  const [[index, value]] = largest(row, 1);
  return { index, value };
};

/* Says what a head does: what was measured, or nothing. */
function tellRole(root, kind, block, h) {
  const found = h === "mean" ? [] : rolesOf(kind, layerIn(block), h);
  for (const { relation, accuracy, cases, low, high } of found) {
    make("b", `Measured: ${relation}. `, root);
    make("span", `In ${exact(accuracy)} of ${cases.toLocaleString("en")} cases this head’s largest weight is on the right word `
      + `(95 % interval ${exact(low)} to ${exact(high)}). `, root);
  }
  if (!found.length) {
    root.textContent = h === "mean" ? `The mean of ${data.config.h} heads. Choose one: the picture above follows.` : "No role was measured for this head.";
  }
}

/* Draws all heads that have a measured role; each leads to its block. */
function drawRoles(root, block) {
  if (!roles().length) return;
  const list = make("p", "Heads of this model with a measured role: ", root, "key roles");
  list.title = `on test sentences (${data.measured.scored_on}); heads that beat chance, every fixed distance and the untrained model`;
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", "heads with a role");
  for (const { kind, layer, head: number, relation, accuracy } of roles()) {
    const its = PATHS[kind](layer - 1);
    const one = button(list, `${relation} ${share(accuracy)}`, () => {
      const chosen = String(number - 1);
      go({ block: its, fold: "", part: "", ...kind === "cross" ? { layer: String(layer - 1), head: chosen } : { own: chosen } });
    }, `role ${kind} ${relation}`, "link");
    one.setAttribute("aria-pressed", its === block && headIn(block) === number - 1);
  }
}
