// What flows: ribbons of cross-attention, threads of self-attention, lanes and marks, each on a canvas.

/* Returns a colour of the page as the canvas takes it. */
function colour(name) {
  const probe = element("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/* Makes a canvas ready to be drawn on again, as sharp as the screen. */
function cleared(canvas, g) {
  const scale = devicePixelRatio || 1;
  canvas.width = g.width * scale;
  canvas.height = g.height * scale;
  canvas.style.height = `${g.height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

/* Returns the ribbons of weights [target][source], of the first `count` target words: widths are the weights.

What a target word takes adds up to one full width; a source word's end shrinks if more than its row is taken from it. */
function ribbonsOf(g, weights, count) {
  const taken = now.ids.map((_, s) => range(count).reduce((sum, t) => sum + weights[t][s], 0));
  const scale = taken.map(sum => Math.min(g.unit, (g.row - g.row / 5) / Math.max(sum, 1e-6)));
  const starts = taken.map((sum, s) => g.y(s) - sum * scale[s] / 2);
  const ribbons = [];
  for (let t = 0; t < count; t++) {
    let y = g.y(t) - g.unit / 2;
    for (let s = 0; s < starts.length; s++) {
      const weight = weights[t][s];
      const ribbon = { t, s, weight, y0: starts[s], h0: weight * scale[s], y1: y, h1: weight * g.unit };
      if (weight >= 0.012) ribbons.push(ribbon);
      starts[s] += ribbon.h0;
      y += ribbon.h1;
    }
  }
  return ribbons;
}

function ribbonPath(g, { y0, h0, y1, h1 }) {
  const middle = (g.from + g.to) / 2;
  const path = new Path2D();
  path.moveTo(g.from, y0);
  path.bezierCurveTo(middle, y0, middle, y1, g.to, y1);
  path.lineTo(g.to, y1 + h1);
  path.bezierCurveTo(middle, y1 + h1, middle, y0 + h0, g.from, y0 + h0);
  path.closePath();
  return path;
}

function drawRibbons(context, g, ribbons, colours, opacity) {
  const gradient = context.createLinearGradient(g.from, 0, g.to, 0);
  [colours.encoder, colours.cross, colours.decoder].forEach((one, i) => gradient.addColorStop(i / 2, one));
  context.fillStyle = gradient;
  context.globalAlpha = opacity;
  for (const ribbon of ribbons) context.fill(ribbon.path ??= ribbonPath(g, ribbon));
  context.globalAlpha = 1;
}

/* Draws the threads of a column of self-attention from key to query, as strong as `strength(query)` times the weight. */
function drawThreads(context, g, { block, x, w }, colours, count, strength) {
  const weights = weightsOf(block);
  const middle = x + w / 2;
  context.strokeStyle = colours[stackOf(block)];
  context.lineCap = "round";
  for (let q = 0; q < count; q++) {
    const near = strength(q);
    if (!near) continue;
    for (let k = 0; k < weights[q].length; k++) {
      const weight = weights[q][k];
      if (weight < 0.03) continue;
      context.lineWidth = 0.5 + Math.min(3, g.row / 9) * weight;
      context.globalAlpha = Math.min(1, (0.1 + 0.9 * weight) * near);
      context.beginPath();
      context.moveTo(x + 3, g.y(k));
      context.bezierCurveTo(middle, g.y(k), middle, g.y(q), x + w - 3, g.y(q));
      context.stroke();
    }
  }
  context.globalAlpha = 1;
}

/* Draws what stays as it is when words are pointed at: lanes, and in each column what it does to them. */
function drawGround(context, g, colours, count) {
  const line = (x0, x1, y, stroke) => {
    context.strokeStyle = stroke;
    context.beginPath();
    context.moveTo(x0, y);
    context.lineTo(x1, y);
    context.stroke();
  };
  context.lineWidth = 1;
  context.globalAlpha = 0.4;
  now.ids.forEach((_, s) => line(g.sourceEnd + 4, g.from, g.y(s), colours.encoder));
  now.output.forEach((_, t) => {
    context.globalAlpha = t < count ? 0.45 : 0.15;
    line(g.to, g.words - 6, g.y(t), colours.decoder);
  });
  for (const { block, x, w } of g.columns) {
    const stack = stackOf(block);
    const rows = stack === "encoder" ? now.ids.length : count;
    const hidden = now.trace[`${block}/hidden`]?.rows;
    context.fillStyle = colours[stack];
    context.globalAlpha = hidden ? 0.75 : 0.5;
    if (isAttention(block)) continue;
    for (let n = 0; n < rows; n++) {
      if (hidden) {
        const active = hidden[n].reduce((sum, value) => sum + (value > 0), 0) / hidden[n].length;
        context.beginPath();
        context.arc(x + w / 2, g.y(n), Math.min(g.row / 3, 1.2 + 8.5 * active), 0, 7);
        context.fill();
      } else context.fillRect(x + w / 2 - 2, g.y(n) - g.row / 6, 4, g.row / 3);
    }
  }
  context.globalAlpha = 1;
  // The encoder's output, and the line that leads it to the layer whose weights are drawn.
  context.lineWidth = 1.5;
  const bottom = side => g.y(side.length - 1) + g.row / 2;
  context.strokeStyle = colours.encoder;
  context.beginPath();
  context.moveTo(g.from, g.top);
  context.lineTo(g.from, bottom(now.ids));
  context.stroke();
  const port = g.columns.find(({ block }) => block === CROSS(layerOf()));
  context.strokeStyle = colours.cross;
  context.beginPath();
  context.moveTo(g.to, bottom(now.output));
  if (port) {
    context.arcTo(g.to, g.top - 8, port.x, g.top - 8, 4);
    context.arcTo(port.x + port.w / 2, g.top - 8, port.x + port.w / 2, g.top, 4);
    context.lineTo(port.x + port.w / 2, g.top);
  } else context.lineTo(g.to, g.top);
  context.stroke();
}
