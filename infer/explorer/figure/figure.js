// The figure: Figure 1 on its side, a lane for each subword; what is pointed at is lit, the rest fades.

let figure = null; // {g, colours, sources, targets, inputs, flow: [target][source]} as drawn
let gliding = 0; // the frame in which the ribbons move on to other weights
const self = () => figure.g.columns.filter(({ block }) => block.endsWith("self_attention"));

/* Returns how many target words are there: fewer while they are played. */
const written = () => playing ? playing.count : now.output.length;

/* Returns what is looked at: while playing the newest word, else what is pointed at, or pinned. */
function lookedAt() {
  if (playing) return { t: playing.count - 1 };
  if (looked.t !== undefined || looked.s !== undefined) return looked;
  if (at.pin !== "") return { t: chosenOf("pin", now.output.length) };
  return at.word === "" ? {} : { s: chosenOf("word", now.ids.length) };
}

function look(what) {
  if (!now || playing || (what.t === looked.t && what.s === looked.s)) return;
  looked = what;
  light();
}

const pinned = (name, n) => go({ pin: "", word: "", other: "", [name]: at[name] === String(n) ? "" : String(n) });

/* Makes the words of one side, a listbox that the arrow keys walk through; to its other side they follow the attention. */
function makeWords(root, g, ids, isSource) {
  const name = isSource ? "s" : "t";
  const list = make("div", undefined, root);
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", `${isSource ? SOURCE : TARGET}, word by word; arrow keys move, Enter pins`);
  const current = chosenOf(isSource ? "word" : "pin", ids.length);
  return ids.map((id, n) => {
    const one = make("span", undefined, list, `word ${isSource ? "source" : "target"}${isMark(id) ? " mark" : ""}`);
    if (isTied(id)) make("span", "·", one, "tie").setAttribute("aria-hidden", "true");
    one.append(wordOf(id));
    one.style.cssText = `top:${g.y(n) - g.row / 2}px;height:${g.row}px;line-height:${g.row}px;${
      isSource ? `right:${g.width - g.sourceEnd}px` : `left:${g.words}px`};max-width:${g.isNarrow ? g.width * 0.3 : 168}px`;
    one.setAttribute("role", "option");
    one.tabIndex = n === current ? 0 : -1;
    one.dataset.key = name + n;
    if (!isSource) {
      const { p, rival } = now.choices[n];
      const other = rival ? `; else ${wordOf(rival.id)}, ${share(rival.p)}` : "";
      one.setAttribute("aria-label", `${id === EOS ? "end of sentence" : wordOf(id)}, ${share(p)}${other}`);
    }
    for (const event of ["pointerenter", "focus"]) one.addEventListener(event, () => look({ [name]: n }));
    for (const event of ["pointerleave", "blur"]) one.addEventListener(event, () => look({}));
    one.addEventListener("click", () => pinned(isSource ? "word" : "pin", n));
    one.addEventListener("keydown", event => moved(event, isSource, n));
    return one;
  });
}

/* Does what a key asks for on word n of a side. */
function moved(event, isSource, n) {
  const sides = [figure.targets, figure.sources];
  const [own, other] = isSource ? sides.reverse() : sides;
  const weights = weightsOf(CROSS(layerOf()));
  const line = isSource ? weights.map(row => row[n]) : weights[n];
  const across = other[largest(line, 1)[0][0]];
  const to = { ArrowDown: own[n + 1], ArrowUp: own[n - 1], Home: own[0], End: own.at(-1),
    ArrowLeft: isSource ? null : across, ArrowRight: isSource ? across : null }[event.key];
  if (event.key === "Enter" || event.key === " ") pinned(isSource ? "word" : "pin", n);
  else if (event.key === "Escape") go({ pin: "", word: "" });
  else if (!to) return;
  event.preventDefault();
  if (!to) return;
  for (const one of to.parentElement.children) one.tabIndex = -1;
  to.tabIndex = 0;
  to.focus({ preventScroll: true });
  to.scrollIntoView({ block: "nearest" });
}

function drawFigure() {
  const root = element("figure");
  const g = geometry();
  const names = Object.fromEntries(["encoder", "cross", "decoder"].map(name => [name, colour(name)]));
  redrawn(root, () => {
    figure = { g, colours: names, flow: weightsOf(CROSS(layerOf())) };
    for (const name of ["ground", "flow", "lit"]) figure[`${name}Canvas`] = make("canvas", undefined, root, name);
    figure.inputs = g.isNarrow ? [] : now.inputs.map((id, t) => {
      const one = make("span", wordOf(id), root, "word input");
      one.style.cssText = `right:${g.width - columnAt("decoder/embedding").x + 7}px;top:${g.y(t) - 8}px`;
      one.setAttribute("aria-hidden", "true");
      return one;
    });
    figure.sources = makeWords(root, g, now.ids, true);
    figure.numbers = now.ids.map((id, s) => {
      const one = make("span", undefined, root, "number");
      one.style.cssText = `right:${g.width - g.sourceEnd + Math.min(150, wide(wordOf(id), g.size)) + 10}px;top:${g.y(s) - 13}px`;
      one.setAttribute("aria-hidden", "true");
      return one;
    });
    figure.targets = makeWords(root, g, now.output, false);
    figure.bars = g.isNarrow ? [] : now.choices.map((choice, t) => makeBar(root, g, choice, t));
    for (const column of g.columns) makeBlock(root, g, column);
    if (!g.isNarrow) makeLabels(root, g);
    root.style.height = `${g.height}px`;
    root.style.setProperty("--size", `${g.size}px`);
  });
  drawPicks(g);
  drawMap();
  drawFlow();
  light();
}

const columnAt = block => figure.g.columns.find(column => column.block === block);
const rowsOf = block => (stackOf(block) === "encoder" ? now.ids : now.output).length;

function makeBlock(root, g, { block, x, w }) {
  const one = button(root, "", () => openBlock(block), `block ${block}`, "block");
  one.classList.toggle("port", kindOf(block) === "cross");
  one.classList.toggle("live", block === CROSS(layerOf()));
  one.setAttribute("aria-label", `${titleOf(block)}: open`);
  one.setAttribute("aria-pressed", block === at.block);
  one.style.cssText = `left:${x}px;top:${g.top}px;width:${w}px;height:${g.row * rowsOf(block)}px;--own:var(--${colourOf(block)})`;
}

/* Makes the bar of a target word's probability, and the rival's, if it is one. */
function makeBar(root, g, { p, rival }, t) {
  const one = make("span", undefined, root, "sure");
  one.style.cssText = `left:${g.bars}px;top:${g.y(t) - g.row / 2}px;height:${g.row}px;line-height:${g.row}px`;
  one.setAttribute("aria-hidden", "true");
  make("i", undefined, one).style.width = `${Math.max(1, 52 * p)}px`;
  if (!rival || rival.p < 0.05) return one;
  make("i", undefined, one, "rival").style.cssText = `left:${52 * p + 1}px;width:${52 * rival.p - 1}px`;
  make("em", wordOf(rival.id), one);
  return one;
}

function makeLabels(root, g) {
  const put = (text, x, y, w, name, colour) => {
    const one = make("span", text, root, `label ${name}`);
    one.style.cssText = `left:${x}px;top:${y}px;width:${w}px;${colour ? `color:var(--${colour})` : ""}`;
    one.setAttribute("aria-hidden", "true");
    return one;
  };
  const end = column => column.x + column.w;
  const inStack = stack => g.columns.filter(({ block }) => block.startsWith(`${stack}/layer`));
  for (const stack of ["encoder", "decoder"]) {
    const columns = inStack(stack);
    put(stack === "encoder" ? "Encoder" : "Decoder", columns[0].x, 4, end(columns.at(-1)) - columns[0].x, "large", stack);
    for (const first of columns.filter(({ block }) => block.endsWith("self_attention"))) {
      const last = columnAt(FEED(stack, layerIn(first.block)));
      put(`layer ${layerIn(first.block) + 1}`, first.x, 22, end(last) - first.x, "");
    }
  }
  for (const { x, first, last } of g.gaps) put(first === last ? first + 1 : `${first + 1}–${last + 1}`, x - 8, 22, FOLDED + 6, "folded");
  put("Cross-attention", g.from, 4, g.to - g.from, "large", "cross");
  put("writes", g.words, 22, 60, "start");
  put("how sure", g.bars, 22, 60, "start");
  figure.hasRead = put("has read", columnAt("decoder/embedding").x - 67, 22, 60, "input end");
  const isTight = self()[0].w < 54;
  const texts = { embedding: "embed-\nding", self_attention: `self-\n${isTight ? "att." : "attention"}`, feed_forward: `feed-\n${isTight ? "fwd." : "forward"}`, softmax: "soft-\nmax" };
  for (const { block, x, w } of g.columns) {
    const name = block.split("/").at(-1);
    const y = g.top + g.row * rowsOf(block) + 5;
    if (kindOf(block) === "cross") put("cross", x - 20, y + 24, w + 40, "below", "cross");
    else put(texts[name], x - 20, y, w + 40, "below");
  }
}

/* Draws which layer and head the ribbons are of, to be chosen. */
function drawPicks(g) {
  const root = element("picks");
  root.style.cssText = g.isNarrow ? "" : `left:${g.from}px;width:${g.to - g.from}px`;
  element("legend").style.cssText = g.isNarrow ? ""
    : `left:${g.from + 14}px;width:${g.to - g.from - 28}px;top:${g.top + g.row * Math.max(now.ids.length, now.output.length) + 5}px`;
  const isMenu = g.to - g.from < 24 * (data.config.N + data.config.h) + 120; // too narrow for buttons
  redrawn(root, () => {
    choice(root, "layer", range(data.config.N).map(n => [n, n + 1]), layerOf(), value => go({ layer: value }), isMenu);
    const heads = [["mean", "mean"], ...range(data.config.h).map(n => [n, n + 1])];
    choice(root, "head", heads, headIn(CROSS(layerOf())), value => go({ head: value }), isMenu);
  });
}

/* Draws Figure 1 as buttons, for screens on which the lanes have no room. */
function drawMap() {
  const root = element("map");
  if (!slim.matches) { root.replaceChildren(); return; }
  redrawn(root, () => {
    for (const stack of ["encoder", "decoder"]) {
      const column = make("div", undefined, root);
      make("p", stack === "encoder" ? "Encoder" : "Decoder", column).style.color = `var(--${stack})`;
      for (const block of blocksOf(stack).reverse()) {
        const one = button(column, titleOf(block).replace(/^\w+, layer (\d+): /, "$1 · "), () => openBlock(block), `map ${block}`);
        one.setAttribute("aria-pressed", block === at.block);
        one.style.setProperty("--own", `var(--${colourOf(block)})`);
      }
    }
  });
}

/* Draws the lanes, and all ribbons and threads. */
function drawFlow() {
  const { g, colours } = figure;
  const count = written();
  drawGround(cleared(figure.groundCanvas, g), g, colours, count);
  const context = cleared(figure.flowCanvas, g);
  for (const column of self()) drawThreads(context, g, column, colours, stackOf(column.block) === "encoder" ? now.ids.length : count, () => 1);
  figure.ribbons = ribbonsOf(g, figure.flow, count);
  drawRibbons(context, g, figure.ribbons, colours, 0.72);
}

/* Lets the ribbons glide to the weights of another layer or head. */
function glide() {
  const before = figure.flow;
  const after = weightsOf(CROSS(layerOf()));
  const began = performance.now();
  cancelAnimationFrame(gliding);
  const frame = time => {
    const part = calm.matches ? 1 : Math.min(1, Math.max(0, (time - began) / 400));
    const eased = part * part * (3 - 2 * part);
    figure.flow = part === 1 ? after : after.map((row, t) => row.map((weight, s) => before[t][s] + (weight - before[t][s]) * eased));
    drawFlow();
    if (part < 1) gliding = requestAnimationFrame(frame);
    light();
  };
  frame(began);
}

/* Lights what is looked at; only that is drawn again. */
function light() {
  const { g, colours, ribbons, flow } = figure;
  const { t, s } = lookedAt();
  const isLit = t !== undefined || s !== undefined;
  const count = written();
  element("figure").classList.toggle("looked", isLit);
  const context = cleared(figure.litCanvas, g);
  if (isLit) {
    drawRibbons(context, g, ribbons.filter(ribbon => t === undefined ? ribbon.s === s : ribbon.t === t), colours, 0.95);
    for (const column of self()) {
      const isSource = stackOf(column.block) === "encoder";
      const strength = q => t === undefined ? Number(isSource && q === s) : isSource ? (flow[t][q] >= 0.1 ? 0.15 + 1.6 * flow[t][q] : 0) : Number(q === t);
      drawThreads(context, g, column, colours, isSource ? now.ids.length : count, q => 1.4 * strength(q));
    }
  }
  figure.sources.forEach((one, n) => {
    const weight = t === undefined ? 0 : flow[t][n];
    one.classList.toggle("dim", t !== undefined && weight < 0.1 || s !== undefined && s !== n);
    one.setAttribute("aria-selected", at.word === String(n));
    figure.numbers[n].textContent = weight >= 0.05 && !g.isNarrow ? share(weight) : "";
  });
  figure.targets.forEach((one, n) => {
    const isDim = t !== undefined && n !== t || s !== undefined && flow[n][s] < 0.1;
    one.classList.toggle("on", n === t);
    one.classList.toggle("dim", isDim);
    one.classList.toggle("later", n >= count);
    one.setAttribute("aria-selected", at.pin === String(n));
    figure.bars[n]?.classList.toggle("dim", isDim);
    figure.bars[n]?.classList.toggle("later", n >= count);
  });
  // The words before it, no later one: without a word only an opened block of the decoder shows them.
  const isRead = t !== undefined || s === undefined && ["decoder/embedding", ...range(data.config.N).map(n => SELF("decoder", n))].includes(at.block);
  figure.inputs.forEach((one, n) => {
    one.classList.toggle("seen", isRead && n <= (t ?? n));
    one.classList.toggle("last", n === t);
  });
  figure.hasRead?.classList.toggle("seen", isRead);
  for (const part of element("translation").children) {
    const places = part.dataset.places?.split(",").map(Number) ?? [];
    part.classList.toggle("on", places.includes(t));
    part.classList.toggle("later", places[0] >= count);
  }
  drawCard();
}

/* Returns the target word whose ribbon is at a point of the figure. */
function ribbonAt(x, y) {
  const { g } = figure;
  if (x < g.from || x > g.to) return undefined;
  return figure.ribbons.findLast(ribbon => ribbon.h1 > 1 && pen.isPointInPath(ribbon.path, x, y))?.t;
}

element("figure").addEventListener("pointermove", event => {
  if (!now || !figure || event.target.tagName !== "CANVAS") return;
  const box = element("figure").getBoundingClientRect();
  const t = ribbonAt(event.clientX - box.left, event.clientY - box.top);
  look(t === undefined ? {} : { t });
});
element("figure").addEventListener("pointerleave", () => look({}));
