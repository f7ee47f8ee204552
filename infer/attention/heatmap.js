// What pages are made of: elements, tables that the arrow keys walk through, and small pictures of numbers.

/* Makes an element, "p.key" with a class; attributes that are functions listen to the event of their name. */
function make(tag, text, parent, attributes = {}) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElementNS(parent.namespaceURI, name);
  if (text !== undefined) element.textContent = text;
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value);
  }
  parent.append(element);
  return element;
}

const percent = p => p > 0 && p < 0.0005 ? "< 0.1 %" : (100 * p).toFixed(1) + " %";

const weightCell = (weight, isMasked) => isMasked ? { text: "", told: "masked", heat: 0, name: "masked" }
  : { text: weight < 0.005 ? "" : Math.round(100 * weight), told: percent(weight), heat: weight };

/* Fills a table; `cell(row, column)` is {text, told, heat, name}: what it says, in full, how strongly, and its class.
`point(row, column)` is called for what is pointed at, without a column at a row's name; Tab reaches the row `first`. */
function heatmap(table, { rows, columns, cell, first = 0, point = () => {} }) {
  table.replaceChildren();
  table.setAttribute("role", "grid");
  const top = make("tr", undefined, make("thead", undefined, table));
  make("td", "", top);
  for (const column of columns) make("span", column, make("th", undefined, top, { scope: "col", title: column }));
  const body = make("tbody", undefined, table);
  const cells = rows.map((row, r) => {
    const pointerover = ({ target }) => point(r, own.includes(target) ? own.indexOf(target) : undefined);
    const line = make("tr", undefined, body, { pointerover });
    make("th", row, line, { scope: "row", title: row });
    const own = columns.map((column, c) => {
      const { text, told = text, heat, name = "" } = cell(r, c);
      return make(`td.heat.${name}`, text, line, {
        role: "gridcell", "aria-label": told, title: `${row} → ${column}: ${told}`, tabindex: -1,
        style: `--w: ${100 * heat}`, focus: () => point(r, c), click: () => point(r, c),
      });
    });
    return own;
  });
  cells[first][0].tabIndex = 0; // one stop for Tab; the arrow keys reach the others
  table.onkeydown = event => {
    const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    const [down, right] = steps[event.key] ?? [];
    const r = cells.findIndex(line => line.includes(event.target));
    const next = cells[r + down]?.[cells[r].indexOf(event.target) + right];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
}

/* Draws numbers from 0 to 1, a pixel each, in the canvas's colour. */
function thumbnail(root, rows) {
  const canvas = make("canvas", undefined, root, { width: rows[0].length, height: rows.length });
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  rows.forEach((row, y) => row.forEach((value, x) => {
    context.globalAlpha = value;
    context.fillRect(x, y, 1, 1);
  }));
}
