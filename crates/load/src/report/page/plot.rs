//! Plots as SVG: curves between two axes, drawn once for wide screens and once for narrow ones, because text that is
//! scaled down with its picture cannot be read on a phone.
//!
//! Colours and weights are classes; the page's style says what they are. Knows no figure.

use std::fmt::Write;

use super::axis::Axis;
use super::html::{TO_STRING, escape};

/// A picture with axes.
pub(super) struct Plot {
    /// Unique in the page.
    pub(super) id: &'static str,
    /// One line.
    pub(super) title: String,
    /// What it shows, for those who do not see it.
    pub(super) description: String,
    /// The axes at a number of ticks that fits the size.
    pub(super) axes: Axes,
    /// The last one is on top.
    pub(super) curves: Vec<Curve>,
    /// Upright lines, such as between rounds.
    pub(super) rules: Vec<f64>,
}

/// A line, in pieces where there is nothing to show.
pub(super) struct Curve {
    pub(super) points: Vec<(f64, f64)>,
    /// Its colour's number.
    pub(super) tone: usize,
    pub(super) weight: Weight,
    pub(super) dashed: bool,
}

/// How a curve is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// One of many.
    Thin,
    /// What the plot is about.
    Bold,
    /// Bold, with the room below it filled.
    Filled,
}

/// Makes the two axes for so many ticks across and up.
pub(super) type Axes = Box<dyn Fn(usize, usize) -> (Axis, Axis)>;

/// Colours that the page has.
pub(super) const TONES: usize = 6;

struct Size {
    name: &'static str,
    width: f64,
    height: f64,
    /// Ticks across and up.
    ticks: (usize, usize),
}

const SIZES: [Size; 2] = [
    Size {
        name: "wide",
        width: 960.0,
        height: 320.0,
        ticks: (10, 8),
    },
    Size {
        name: "narrow",
        width: 360.0,
        height: 280.0,
        ticks: (4, 7),
    },
];

const LEFT: f64 = 66.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

impl Plot {
    /// The plot in both sizes, of which the page's style shows one.
    pub(super) fn svg(&self) -> String {
        SIZES.iter().map(|size| self.draw(size)).collect()
    }

    fn draw(&self, size: &Size) -> String {
        let (across, up) = size.ticks;
        let (x, y) = (self.axes)(across, up);
        let area = Area { x, y, size };
        let id = format!("{}-{}", self.id, size.name);
        let mut out = format!(
            "<svg class=\"plot {}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{id}-title {id}-text\">\n\
             <title id=\"{id}-title\">{}</title>\n<desc id=\"{id}-text\">{}</desc>\n",
            size.name,
            size.width,
            size.height,
            escape(&self.title),
            escape(&self.description),
        );
        area.grid(&mut out);
        for rule in &self.rules {
            let x = area.across(*rule);
            line(&mut out, "rule", (x, TOP), (x, area.bottom()));
        }
        for curve in &self.curves {
            area.curve(&mut out, curve);
        }
        out.push_str("</svg>\n");
        out
    }
}

/// The axes and where they lie in the picture.
struct Area<'a> {
    x: Axis,
    y: Axis,
    size: &'a Size,
}

impl Area<'_> {
    fn right(&self) -> f64 {
        self.size.width - RIGHT
    }

    fn bottom(&self) -> f64 {
        self.size.height - BOTTOM
    }

    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (self.right() - LEFT)
    }

    fn up(&self, value: f64) -> f64 {
        self.bottom() - self.y.place(value) * (self.bottom() - TOP)
    }

    /// Lines at the ticks, their names, and what is counted across.
    fn grid(&self, out: &mut String) {
        for (value, name) in &self.y.ticks {
            let y = self.up(*value);
            line(out, "grid", (LEFT, y), (self.right(), y));
            text(out, "end", (LEFT - 8.0, y + 4.0), name);
        }
        for (value, name) in &self.x.ticks {
            let x = self.across(*value);
            line(out, "grid", (x, TOP), (x, self.bottom()));
            text(out, "middle", (x, self.bottom() + 18.0), name);
        }
        let middle = f64::midpoint(LEFT, self.right());
        text(out, "middle", (middle, self.size.height - 8.0), &self.x.label);
    }

    fn curve(&self, out: &mut String, curve: &Curve) {
        let mut path = String::new();
        let mut last = None;
        for (x, y) in &curve.points {
            let point = (tenth(self.across(*x)), tenth(self.up(*y)));
            if last == Some(point) {
                continue;
            }
            let step = if last.is_none() { 'M' } else { 'L' };
            write!(path, "{step}{} {}", point.0, point.1).expect(TO_STRING);
            last = Some(point);
        }
        let (Some(end), Some(start)) = (last, curve.points.first()) else {
            return;
        };
        let tone = curve.tone % TONES;
        if curve.weight == Weight::Filled {
            let (bottom, start) = (tenth(self.bottom()), tenth(self.across(start.0)));
            let area = format!("{path}L{} {bottom}L{start} {bottom}Z", end.0);
            writeln!(out, "<path class=\"area t{tone}\" d=\"{area}\"/>").expect(TO_STRING);
        }
        let weight = if curve.weight == Weight::Thin {
            "thin"
        } else {
            "bold"
        };
        let dashed = if curve.dashed { " dashed" } else { "" };
        writeln!(
            out,
            "<path class=\"curve {weight}{dashed} t{tone}\" d=\"{path}\"/>"
        )
        .expect(TO_STRING);
    }
}

/// A line of a legend: a piece of the curve and its name.
pub(super) fn legend(entries: &[(usize, bool, String)]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (tone, dashed, name) in entries {
        let (tone, dashed) = (tone % TONES, if *dashed { " dashed" } else { "" });
        write!(
            out,
            "<li><svg viewBox=\"0 0 28 8\" aria-hidden=\"true\"><path class=\"curve bold{dashed} t{tone}\" \
             d=\"M1 4L27 4\"/></svg>{}</li>",
            escape(name)
        )
        .expect(TO_STRING);
    }
    out.push_str("</ul>\n");
    out
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(tenth);
    writeln!(out, "<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>").expect(TO_STRING);
}

fn text(out: &mut String, anchor: &str, at: (f64, f64), text: &str) {
    let (x, y) = (tenth(at.0), tenth(at.1));
    let text = escape(text);
    writeln!(out, "<text class=\"{anchor}\" x=\"{x}\" y=\"{y}\">{text}</text>").expect(TO_STRING);
}

/// A tenth of a unit is finer than a screen.
fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
