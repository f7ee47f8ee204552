// A block, opened: what it does, its heads, what-ifs, and all its numbers.

const TOLD = {
  embedding: "Each subword becomes a row of numbers: its own, times √d, plus sines and cosines that say where it stands. "
    + "Each pair of these is a clock’s hand: k places on it has turned by the same angle everywhere.",
  "feed-forward": "Each word by itself: max(0, x W₁ + b₁) W₂ + b₂. Only units above zero pass anything on.",
  softmax: "Logits, x Eᵀ; their softmax has a probability for each subword.",
  encoder: "Every word looks at every other: softmax(Q Kᵀ / √d_k) V. A row adds up to 100 %.",
  decoder: "Each word looks back at what is written. What comes later is masked: the empty corner.",
  cross: `Each ${TARGET} word looks at the ${SOURCE} words. These weights are the ribbons.`,
};

function openBlock(block) {
  const isOpened = at.block !== block;
  const layer = kindOf(block) === "cross" ? { layer: String(layerIn(block)) } : {};
  go({ ...layer, block: isOpened ? block : "", part: "", from: "0" });
  if (isOpened) element("panel").focus();
}

function closeBlock() {
  const key = `${slim.matches ? "map" : "block"} ${at.block}`;
  go({ block: "" });
  document.querySelector(`[data-key="${key}"]`).focus();
}
element("panel").addEventListener("keydown", event => { if (event.key === "Escape") closeBlock(); });

// Figure 1 as buttons, for screens on which the lanes have no room.
function drawMap() {
  const root = emptied("map");
  for (const stack of slim.matches && now ? ["encoder", "decoder"] : []) {
    const values = blocksOf(stack).map(block => [block, titleOf(block)]);
    chips(root, "map", values, at.block, openBlock).classList.add(stack);
  }
}

function drawPanel() {
  const root = emptied("panel");
  root.hidden = !now || ![...blocksOf("encoder"), ...blocksOf("decoder")].includes(at.block);
  if (root.hidden) return;
  const kind = kindOf(at.block);
  root.className = kind;
  make("button.pill", "Close", root, { "data-key": "close", click: closeBlock });
  make("h2", titleOf(at.block), root);
  make("p.say", TOLD[nameOf(at.block)] ?? TOLD[kind], root);
  if (at.block.endsWith("attention")) drawAttention(root, kind);
  else if (at.block.endsWith("embedding")) whatIf(root, ["positions", "order"]);
  drawNumbers(root);
}

function drawAttention(root, kind) {
  const weights = weightsOf(at.block);
  const rows = kind === "encoder" ? now.source : now.target;
  const columns = kind === "decoder" ? now.read : now.source;
  const isMasked = (t, s) => kind === "decoder" && s > t && !switched().includes("mask");
  const both = make("div.both", undefined, root);
  const left = make("div", undefined, both);
  drawTable(left, "matrix", "attention weights, in per cent; rows look at columns", {
    rows, columns, cell: (t, s) => weightCell(weights[t][s], isMasked(t, s)),
    point(t, s = largest(weights[t], 1)[0][0]) {
      read.textContent = `“${rows[t]}” looks at “${columns[s]}”: ${percent(weights[t][s])}`;
    },
  });
  const read = make("output.key", "Point at a cell, or use the arrow keys.", left);
  const right = make("div", undefined, both);
  const chosen = headIn(at.block);
  const list = chips(right, "head", OF_HEAD, String(chosen), head => go({ head }));
  list.classList.add("heads");
  const own = (data.measured?.roles ?? []).filter(role => role.kind === kind && role.layer === layerIn(at.block) + 1);
  OF_HEAD.forEach(([h], i) => {
    thumbnail(list.children[i], weightsOf(at.block, h).map(row => row.map(Math.sqrt)));
    const role = own.find(({ head }) => head === i);
    if (role) make("small", `${role.relation}: ${share(role.accuracy)}`, list.children[i]);
  });
  make("p.key", "The picture follows. Under a head stands what it was measured to do, and how often.", right);
  const ofHead = chosen === "mean" ? [] : [`out:${at.block}:${chosen}`, `only:${at.block}:${chosen}`];
  whatIf(right, ["scale", ...kind === "decoder" ? ["mask"] : [], ...ofHead]);
}

function drawTable(root, name, about, content) {
  const frame = make("div.scroll", undefined, root);
  heatmap(make(`table.${name}`, undefined, frame, { "aria-label": about }), content);
}

function drawNumbers(root) {
  const layer = at.block.split("/").slice(0, 2).join("/");
  const isOwn = name => at.block === "softmax" ? !/layer|embedding/.test(name) : name.startsWith(layer);
  const parts = Object.keys(now.trace).filter(isOwn);
  const name = [at.part, at.block, "logits"].find(one => parts.includes(one));
  make("h2", "All numbers", root);
  chips(root, "part", parts.map(one => [one, one.replace(`${layer}/`, "")]), name, part => go({ part, from: "0" }));
  const rows = now.trace[name];
  const width = rows[0].length;
  const from = chosenOf("from", width);
  slider(root, "from", `${rows.length} positions × ${width}, from column`, 0, width - 1);
  const columns = range(width).slice(from, from + 32);
  const isSource = name.startsWith("encoder") || /cross_attention\/[kv]$/.test(name);
  const most = maximum(rows.map(row => maximum(row.map(Math.abs).filter(Number.isFinite))));
  drawTable(root, "grid", name, {
    rows: isSource ? now.source : now.read,
    columns: columns.map(i => name === "logits" ? model.target.label(i) : i + 1),
    cell(t, c) {
      const value = rows[t][from + c];
      return { text: short(value), heat: Math.abs(value) / most, name: value < 0 ? "below" : "" };
    },
  });
}
