// Where everything in the figure stands: columns are measured from the words, and the ribbons get the rest.

const EMBEDDING = 12, FEED_FORWARD = 20, PORT = 8, FOLDED = 24; // widths of columns, in pixels
const pen = document.createElement("canvas").getContext("2d");

/* Returns how wide a text is in the face of the words. */
function wide(text, size) {
  pen.font = `${size}px ${getComputedStyle(element("figure")).fontFamily}`;
  return Math.ceil(pen.measureText(text).width);
}
const widest = (ids, size, most = 150) => Math.min(most, Math.max(20, ...ids.map(id => wide((isTied(id) ? "·" : "") + wordOf(id), size))));

/* Returns the columns of a stack from x on, and where it ends: {columns: [{block, x, w}], gaps: [{x, layers}], end}. */
function columnsOf(stack, layers, self, x) {
  const columns = [];
  const gaps = [];
  const put = (block, w, after) => { columns.push({ block, x, w }); x += w + after; };
  put(`${stack}/embedding`, EMBEDDING, 8);
  layers.forEach((n, i) => {
    const before = i ? layers[i - 1] : -1;
    if (n > before + 1) { gaps.push({ x, first: before + 1, last: n - 1 }); x += FOLDED; }
    put(SELF(stack, n), self, stack === "decoder" ? 8 : 5);
    if (stack === "decoder") put(CROSS(n), PORT, 8);
    put(FEED(stack, n), FEED_FORWARD, 10);
  });
  return { columns, gaps, end: x - 10 };
}

function geometry() {
  const width = element("figure").clientWidth;
  const isNarrow = slim.matches;
  const output = now.output;
  const most = Math.max(now.ids.length, output.length);
  const row = isNarrow ? (most > 24 ? 24 : 31) : most > 20 ? Math.max(16, Math.floor(580 / most)) : 29;
  const size = isNarrow ? (width < 420 ? 15 : 17) : row > 26 ? 18 : Math.max(12.5, 0.75 * row);
  const top = isNarrow ? 6 : 54;
  const limit = isNarrow ? width * 0.3 : 150;
  const g = { width, isNarrow, row, size, top, unit: Math.min(17, 0.6 * row), columns: [], gaps: [],
    y: n => top + row * (n + 0.5), height: top + row * most + (isNarrow ? 4 : 42) };
  g.sourceEnd = widest(now.ids, size, limit) + (isNarrow ? 0 : 42);
  if (isNarrow) {
    g.from = g.sourceEnd + 7;
    g.words = width - widest(output, size, limit) - 8;
    g.to = g.words - 9;
    return g;
  }
  const rivals = now.choices.map(({ rival }) => rival && rival.p >= 0.05 ? wide(wordOf(rival.id), 14) : 0);
  g.bars = width - 62 - Math.min(120, Math.max(0, ...rivals));
  g.words = g.bars - widest(output, size) - 18;
  const inputs = widest(now.inputs, 13, 110) + 8;
  // All layers if the ribbons have room; else the first, the chosen and the last; narrow columns before fewer.
  const { N } = data.config;
  const some = [...new Set([0, layerOf(), N - 1])];
  some.sort((a, b) => a - b);
  const tried = [[range(N), 54, 300], [range(N), 38, 220], [some, 54, 250], [some, 38, 220], [some.slice(-2), 34, 0]];
  for (const [layers, self, least] of tried) {
    const left = columnsOf("encoder", layers, self, g.sourceEnd + 10);
    const span = columnsOf("decoder", layers, self, 0).end;
    const right = columnsOf("decoder", layers, self, g.words - 10 - EMBEDDING - 14 - span);
    g.softmax = g.words - 10 - EMBEDDING;
    g.from = left.end - 1;
    g.to = right.columns[0].x - 8 - inputs;
    g.columns = [...left.columns, ...right.columns, { block: "softmax", x: g.softmax, w: EMBEDDING }];
    g.gaps = [...left.gaps.map(gap => ({ ...gap, stack: "encoder" })), ...right.gaps.map(gap => ({ ...gap, stack: "decoder" }))];
    if (g.to - g.from >= least) break;
  }
  if (g.to - g.from < 300) g.height += 14; // the legend has a line more
  return g;
}
