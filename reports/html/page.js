"use strict";
// Draws the figures in the page's colours, sorts and filters the table of trials. No request is ever made.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const narrow = () => window.innerWidth < 640;

  function colours() {
    const edge = getComputedStyle(document.querySelector(".edge")).borderTopColor;
    return { ink: getComputedStyle(document.body).color, edge };
  }

  // A legend below a plot takes its room from the plot: give it room of its own, a line per name on a phone.
  function legendRoom(figure) {
    const names = figure.data.filter((trace) => trace.name && trace.showlegend !== false).length;
    return names > 1 ? 24 * Math.ceil(names / (narrow() ? 1 : 3)) : 0;
  }

  function layoutOf(figure) {
    const { ink, edge } = colours();
    const axis = { color: ink, gridcolor: edge, linecolor: edge, zerolinecolor: edge };
    const layout = { ...figure.layout };
    for (const name of ["xaxis", "yaxis"]) layout[name] = { ...layout[name], ...axis };
    const room = legendRoom(figure);
    layout.height += room;
    layout.margin = { ...layout.margin, b: layout.margin.b + room + 8, l: narrow() ? 44 : layout.margin.l };
    layout.showlegend = room > 0 && layout.showlegend !== false;
    layout.font = { color: ink, family: "system-ui, sans-serif", size: 12 };
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.dragmode = narrow() ? false : "zoom";
    return layout;
  }

  function draw(plot) {
    const figure = figures[plot.dataset.figure];
    const least = (figure.layout.meta || {}).min_width;
    if (least) plot.style.minWidth = `${least}px`;
    Plotly.react(plot, figure.data, layoutOf(figure), { responsive: true, displaylogo: false });
  }

  const seen = () => [...document.querySelectorAll(".plot")].filter((plot) => !plot.closest("[hidden]"));
  const drawAll = () => seen().forEach(draw);

  for (const choice of document.querySelectorAll("select[data-group]")) {
    choice.addEventListener("change", () => {
      for (const chart of document.querySelectorAll(`.chart[data-group="${choice.dataset.group}"]`)) {
        chart.hidden = chart.dataset.chart !== choice.value;
      }
      drawAll();
    });
  }

  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
      (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    drawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

  const table = document.getElementById("all-trials");
  if (table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const said = document.getElementById("shown");
    const fields = [...document.querySelectorAll("[data-filter]")];

    const filter = () => {
      let shown = 0;
      for (const row of rows) {
        row.hidden = !fields.every((field) => {
          const wanted = field.value.toLowerCase();
          if (field.dataset.filter === "text") return row.textContent.toLowerCase().includes(wanted);
          return !wanted || (row.dataset[field.dataset.filter] || "").toLowerCase() === wanted;
        });
        shown += row.hidden ? 0 : 1;
      }
      said.textContent = `${shown} of ${rows.length} trials`;
    };
    fields.forEach((field) => field.addEventListener("input", filter));

    const key = (row, column) => {
      const cell = row.cells[column];
      return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim().toLowerCase();
    };
    const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = heading.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const up = heading.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        rows.sort((a, b) => (up ? 1 : -1) * compare(key(a, column), key(b, column)));
        body.append(...rows);
      });
    });
    filter();
  }

  // A link to a log opens it.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  window.addEventListener("hashchange", open);
  open();
  drawAll();
})();
