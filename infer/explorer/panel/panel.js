// One block of the figure, opened.

/* Returns the blocks of a stack, from its input to its output. */
function blocksOf(stack) {
  const layers = range(data.config.N).flatMap(n =>
    [SELF(stack, n), ...stack === "decoder" ? [CROSS(n)] : [], FEED(stack, n)]);
  return [`${stack}/embedding`, ...layers, ...stack === "decoder" ? ["softmax"] : []];
}

const NAMES = { embedding: "embedding and position", self_attention: "self-attention", cross_attention: "cross-attention",
  feed_forward: "feed-forward" };

function titleOf(block) {
  if (block === "softmax") return "Softmax";
  const [stack, ...path] = block.split("/");
  const name = NAMES[path.at(-1)];
  const masked = block === SELF("decoder", layerIn(block)) ? "masked " : "";
  const where = stack === "encoder" ? "Encoder" : "Decoder";
  return path.length > 1 ? `${where}, layer ${layerIn(block) + 1}: ${masked}${name}` : `${where}: ${name}`;
}

/* Returns in a sentence or two what a block does, and its equation. */
function toldOf(block) {
  const { d_model, d_ff, vocab_size, scale_embeddings } = data.config;
  if (block === "softmax") {
    return [`${d_model} numbers become ${vocab_size.toLocaleString("en")} probabilities, one for each subword.`, "p = softmax(x E^T)"];
  }
  if (block.endsWith("embedding")) {
    const start = stackOf(block) === "decoder" ? ` The ${TARGET} words are shifted by one place: the first thing read is “start”.` : "";
    return [`Each subword becomes ${d_model} numbers: its own, plus sines and cosines that say where it stands.${start}`,
      scale_embeddings ? "x = E[token] √d + PE(pos)" : "x = E[token] + PE(pos)"];
  }
  if (block.endsWith("feed_forward")) {
    return [`Each word by itself: ${d_ff} units, and only those above zero pass anything on.`, "max(0, x W_1 + b_1) W_2 + b_2"];
  }
  const equation = "softmax(Q K^T / √d_k) V in every head, then W^O";
  if (kindOf(block) === "cross") return [`Each ${TARGET} word looks at the ${SOURCE} words. These weights are the ribbons.`, equation];
  return stackOf(block) === "encoder"
    ? [`Every ${SOURCE} word looks at every other, and takes something from each in proportion to the colour.`, equation]
    : [`Each ${TARGET} word looks back at what is already written. What comes later is masked: the empty corner.`, equation];
}

function openBlock(block) {
  const opened = at.block === block ? "" : block;
  go({ block: opened, own: "mean", part: "", fold: "", ...opened && kindOf(block) === "cross" ? { layer: String(layerIn(block)) } : {} });
  if (opened) {
    element("panel").focus({ preventScroll: true });
    element("panel").scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
  }
}

/* Closes the block and returns the focus to it. */
function closeBlock() {
  const block = at.block;
  go({ block: "", fold: "" });
  for (const place of ["figure", "map"]) element(place).querySelector(`[data-key$="${block}"]`)?.focus();
}

element("panel").addEventListener("keydown", event => { if (event.key === "Escape") closeBlock(); });

function drawPanel() {
  const root = element("panel");
  const isKnown = [...blocksOf("encoder"), ...blocksOf("decoder")].includes(at.block);
  root.hidden = !isKnown || !now;
  if (root.hidden) { root.replaceChildren(); return; }
  root.style.setProperty("--own", `var(--${colourOf(at.block)})`);
  root.setAttribute("aria-label", titleOf(at.block));
  redrawn(root, () => {
    const top = make("header", undefined, root);
    make("h2", titleOf(at.block), top);
    button(top, "Close", closeBlock, "close", "pill");
    const [told, equation] = toldOf(at.block);
    make("p", `${told} `, root, "say");
    formula(root, equation);
    if (isAttention(at.block)) drawAttention(root, at.block);
    else if (at.block.endsWith("feed_forward")) drawFeedForward(root, at.block);
    else if (at.block.endsWith("embedding")) drawEmbedding(root, at.block);
    else drawSoftmax(root);
    fold(root, "numbers", "All numbers", details => drawNumbers(details, at.block));
  });
}

/* Writes an equation, with what follows ^ and _ raised and lowered. */
function formula(root, text) {
  const line = make("p", undefined, root, "equation");
  text.split(/([\^_])(\(.*?\)|[\wα])/).forEach((part, i, parts) => {
    if (i % 3 !== 1) make({ "^": "sup", _: "sub" }[parts[i - 1]] ?? "span", part, line);
  });
}

/* Draws a heading, an equation and a caption. */
function step(root, title, equation, caption) {
  make("h3", title, root);
  if (equation) formula(root, equation);
  if (caption) make("p", caption, root, "key");
}

/* Draws vectors as strips: in colour above zero, in grey below; a column is the largest of `together` numbers. */
function strips(root, names, rows, block, together = 1) {
  const columns = Math.ceil(rows[0].length / together);
  const most = Math.max(1e-9, ...rows.map(row => row.reduce((a, b) => Math.max(a, Math.abs(b)), 0)));
  const table = make("div", undefined, root, "strips");
  const colours = [colour(stackOf(block)), colour("soft")];
  names.forEach((name, t) => {
    make("span", name, table);
    const canvas = make("canvas", undefined, table);
    [canvas.width, canvas.height] = [columns, 1];
    const context = canvas.getContext("2d");
    for (let c = 0; c < columns; c++) {
      const part = rows[t].subarray(c * together, (c + 1) * together);
      const value = part.reduce((a, b) => Math.abs(b) > Math.abs(a) ? b : a, 0);
      context.fillStyle = colours[Number(value < 0)];
      context.globalAlpha = Math.min(1, 1.15 * Math.abs(value) / most);
      context.fillRect(c, 0, 1, 1);
    }
  });
}

function drawFeedForward(root, block) {
  const { rows } = now.trace[`${block}/hidden`];
  const names = (stackOf(block) === "encoder" ? now.ids : now.output).map(wordOf);
  const together = Math.ceil(rows[0].length / 128);
  strips(root, names, rows, block, together);
  const active = rows.reduce((sum, row) => sum + row.filter(value => value > 0).length, 0) / rows.length;
  const most = rows.reduce((top, row) => row.reduce((a, b) => Math.max(a, b), top), 0);
  make("p", `${together > 1 ? `A column is the largest of ${together} neighbouring units. ` : ""}On average ${Math.round(active)} of `
    + `${rows[0].length} units are above zero; the largest value is ${short(most)}.`, root, "key");
  fold(root, "lens", "Logit lens: what if a layer were the last?", details => drawLens(details, stackOf(block)));
}

/* Draws what each layer would say if it were the last. */
function drawLens(root, stack) {
  make("p", stack === "encoder" ? "For each subword read, the subword that its vector is most like." : "For each place, the subword that a layer would predict.", root, "key");
  const lens = logitLens(model, now.trace, stack);
  grid(root, { name: `logit lens of the ${stack}`, rows: ["embedding", ...range(model.config.N).map(n => `layer ${n + 1}`)],
    columns: (stack === "encoder" ? now.ids : now.output).map(wordOf),
    values: lens.map(row => row.map(logits => largest(softmax(logits), 1)[0])),
    text: ([id, p]) => `${wordOf(stack === "encoder" ? model.tokenizer.toSource(id) : id)} ${share(p)}`, heat: ([, p]) => p });
}

function drawEmbedding(root, block) {
  const { rows } = now.trace[block];
  const names = (stackOf(block) === "encoder" ? now.ids : now.inputs).map(wordOf);
  strips(root, names, rows, block, Math.ceil(rows[0].length / 128));
  make("p", `${rows[0].length} numbers a word: in colour above zero, in grey below.`, root, "key");
  whatIf(root, ["positions", "order"]);
  if (data.config.positions === "sinusoidal") {
    fold(root, "positions", "Positions: why sines and cosines?", drawPositions);
  }
}

function drawSoftmax(root) {
  const list = make("div", undefined, root, "places");
  now.output.forEach((id, t) => {
    const box = make("div", undefined, list);
    make("p", `${t + 1}`, box, "key");
    bars(box, now.choices[t].best.map(([other, p]) => [wordOf(other), p, other === id]), "");
  });
  make("p", "At each place the five most probable subwords; the one in colour was written.", root, "key");
}
