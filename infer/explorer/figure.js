// The figure: Figure 1 on its side, a lane for each subword.

let figure = null; // {sources, targets, row, top, from, to, weights: [target][source]}, as drawn

const laneOf = n => figure.top + figure.row * (n + 0.5);

function curve(x0, y0, x1, y1) {
  const middle = (x0 + x1) / 2;
  return `${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`;
}

function drawFigure() {
  const most = Math.max(now.ids.length, now.output.length);
  const row = Math.max(slim.matches ? 24 : 16, Math.min(29, Math.floor(580 / most)));
  // All layers if the ribbons have room; else the first, the chosen and the last; narrow columns before fewer.
  const some = [...new Set([0, layerIn(crossing()), N - 1])].sort((a, b) => a - b);
  const tried = slim.matches ? [[[], 0]] : [[range(N), 54], [range(N), 40], [some, 54], [some, 40]];
  for (const [layers, width] of tried) {
    makeColumns(row, layers, width);
    if (figure.to - figure.from >= 240) break;
  }
}

function makeColumns(row, layers, width) {
  const root = emptied("columns");
  emptied("ribbons");
  root.style = `--row: ${row}px; --self: ${width}px`;
  const sources = makeWords(root, "s", SOURCE, now.source);
  makeBlocks(root, "encoder", layers, row * sources.length);
  const space = make("div.space", undefined, root);
  make("b.cross", "Cross-attention", space);
  make("div", undefined, space, { id: "picks" });
  make("p.key", "The wider a ribbon, the more a word looks at another. Threads: attention within "
    + "a sentence. Dots: units that are on. Open any block.", space);
  if (layers.length) makeColumn(root, "inputs", "has read", now.read);
  makeBlocks(root, "decoder", layers, row * now.target.length);
  const targets = makeWords(root, "t", TARGET, now.target);
  makeColumn(root, "sure", "how sure", now.target.map(() => "")).forEach(makeBar);
  const from = space.offsetLeft;
  figure = { sources, targets, row, top: sources[0].offsetTop, from, to: from + space.offsetWidth };
}

function makeWords(root, side, title, words) {
  const about = `${title}, word by word; arrow keys move, Enter pins`;
  const list = make(`div.words.${side}`, undefined, root, { role: "listbox", "aria-label": about });
  return words.map((word, n) => make("span", word, list, {
    role: "option", tabindex: n ? -1 : 0, [`data-${side}`]: n, "data-key": side + n,
  }));
}

function makeColumn(root, name, title, texts) {
  const column = make(`div.${name}`, undefined, root, { "aria-hidden": true });
  make("small", title, column);
  return texts.map((text, t) => make("span", text, column, { "data-t": t }));
}

function makeBar(root, t) {
  const { p, rival: [id, q] } = now.choices[t];
  make("i", undefined, root, { style: `width: ${52 * p}px` });
  if (q < 0.05) return;
  make("i.rival", undefined, root, { style: `width: ${52 * q}px` });
  make("em", wordOf(id), root);
}

// Between layers that are not neighbours stand the numbers of those left out.
function makeBlocks(root, stack, layers, height) {
  let last = -1;
  for (const block of layers.length ? blocksOf(stack, layers) : []) {
    const n = layerIn(block);
    if (n > last + 1) make("small", n === last + 2 ? n : `${last + 2}–${n}`, root);
    const one = make(`button.block.${kindOf(block)}.${nameOf(block)}`, undefined, root, {
      style: `height: ${height}px`, click: () => openBlock(block),
      "aria-label": `${titleOf(block)}: open`, "data-key": `block ${block}`,
    });
    make("span", nameOf(block).replace("-", "-\n"), one);
    if (n > last) make("small", `layer ${n + 1}`, one);
    if (n > last && n === 0) make("b", titleOf(block).split(",")[0], one);
    last = Math.max(n, last);
  }
}

function drawFlow() {
  figure.weights = weightsOf(crossing());
  const root = emptied("marks");
  const mark = (tag, name, attributes) => make(`${tag}.${name}`, undefined, root, attributes);
  const { from, to, top, sources, targets } = figure;
  const lanes = (words, x0, x1) => words.map((_, n) => `M${x0} ${laneOf(n)}H${x1}`).join("");
  mark("path", "lane.encoder", { d: lanes(sources, sources[0].offsetLeft + sources[0].offsetWidth, from) });
  mark("path", "lane.decoder", { d: lanes(targets, to, targets[0].offsetLeft) });
  for (const one of document.querySelectorAll(".block")) drawBlock(one, one.dataset.key.slice(6), mark);
  // The encoder's output, and the line that leads it to the layer whose weights are drawn.
  const port = document.querySelector(".live");
  const lead = port ? `V${top - 8}H${port.offsetLeft + 4}V${top}` : `V${top}`;
  mark("path", "encoder", { d: `M${from} ${top}V${laneOf(sources.length - 0.5)}` });
  mark("path", "cross", { d: `M${to} ${laneOf(targets.length - 0.5)}${lead}` });
  drawRibbons();
  const picks = emptied("picks");
  chips(picks, "layer", numbered(N), String(layerIn(crossing())), layer => go({ layer }));
  chips(picks, "head", OF_HEAD, String(headIn(crossing())), head => go({ head }));
}

// What a target word takes adds up to one full width; a source word's end shrinks if more than its row is taken from it.
function drawRibbons() {
  const { from, to, row, weights } = figure;
  const unit = Math.min(17, 0.6 * row);
  const taken = now.ids.map((_, s) => total(weights.map(line => line[s])));
  const scales = taken.map(sum => Math.min(unit, 0.8 * row / sum));
  const starts = taken.map((sum, s) => laneOf(s) - sum * scales[s] / 2);
  const root = element("ribbons");
  weights.forEach((line, t) => {
    let end = laneOf(t) - unit / 2;
    line.forEach((weight, s) => {
      const there = curve(from, starts[s], to, end);
      starts[s] += weight * scales[s];
      end += weight * unit;
      const one = root.children[t * line.length + s] ?? make("path", undefined, root, { "data-t": t, "data-s": s });
      one.setAttribute("d", `M${there}L${curve(to, end, from, starts[s])}z`);
    });
  });
}

function drawBlock(one, block, mark) {
  const stack = stackOf(block);
  const side = stack === "encoder" ? "data-s" : "data-t";
  const [x, width] = [one.offsetLeft + 3, one.offsetWidth - 6];
  one.ariaPressed = block === at.block;
  one.classList.toggle("live", block === crossing());
  if (block.endsWith("self_attention")) {
    weightsOf(block).forEach((row, q) => row.forEach((weight, k) => {
      const d = `M${curve(x, laneOf(k), x + width, laneOf(q))}`;
      const opacity = 0.1 + 0.9 * weight;
      if (weight > 0.03) mark("path", stack, { d, opacity, [side]: q, "stroke-width": 0.5 + 3 * weight });
    }));
  } else if (kindOf(block) !== "cross") {
    const hidden = now.trace[`${block}/hidden`];
    (stack === "encoder" ? now.ids : now.output).forEach((_, n) => {
      const active = hidden ? hidden[n].filter(value => value > 0).length / hidden[n].length : 0.1;
      const r = Math.min(figure.row / 3, 1.2 + 8.5 * active);
      mark("circle", stack, { cx: x + width / 2, cy: laneOf(n), r, [side]: n });
    });
  }
}
