//! Sizes, printed for people: the largest files and functions, tests left out.

use crate::source::SourceFile;

/// Lines below which a file is easy to proofread.
const FILE_LINES_AIM: usize = 600;
/// Lines below which a function is easy to proofread.
const FUNCTION_LINES_AIM: usize = 70;
/// How many of each are shown.
const SHOWN: usize = 10;

/// Prints the largest files and functions of the three crates.
#[expect(
    clippy::print_stdout,
    reason = "the figures are meant for the person who reads the test's output"
)]
pub fn show(files: &[SourceFile]) {
    let mut by_file = Vec::new();
    let mut by_function = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.is_test()) {
        let lines = without_tests(&file.text);
        by_file.push((lines.len(), file.path.clone()));
        by_function.extend(functions(&lines).map(|(name, size)| (size, format!("{} {name}", file.path))));
    }
    for (title, aim, mut sizes) in [
        ("files", FILE_LINES_AIM, by_file),
        ("functions", FUNCTION_LINES_AIM, by_function),
    ] {
        sizes.sort_by(|a, b| b.cmp(a));
        let above = sizes.iter().filter(|(size, _)| *size > aim).count();
        println!("{} {title}, {above} above {aim} lines; the largest:", sizes.len());
        sizes
            .iter()
            .take(SHOWN)
            .for_each(|(size, name)| println!("{size:6} {name}"));
    }
}

/// The lines up to the module of tests, which rustfmt leaves at the margin.
fn without_tests(text: &str) -> Vec<&str> {
    text.lines().take_while(|line| *line != "#[cfg(test)]").collect()
}

/// Name and length in lines of every function: in formatted code it ends at the first `}` of its own depth.
fn functions<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (&'a str, usize)> {
    lines.iter().enumerate().filter_map(|(at, line)| {
        let code = line.trim_start();
        let (qualifiers, rest) = code.split_once("fn ")?;
        let is_item = qualifiers.split_whitespace().all(|word| {
            word.starts_with("pub")
                || matches!(
                    word,
                    "const" | "async" | "unsafe" | "extern" | "crate)" | "super)"
                )
        });
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let size = lines[at..].iter().position(|line| **line == end)? + 1;
        (is_item && !code.starts_with("//")).then_some((name, size))
    })
}
