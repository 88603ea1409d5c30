//! Tables as text: Markdown that is also aligned for reading in a terminal.

/// A Markdown table; all columns but the first `left` are aligned to the right.
pub(crate) fn markdown(header: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).enumerate().map(|(column, (cell, &width))| {
            let space = " ".repeat(width.saturating_sub(cell.chars().count()));
            if column < left { format!(" {cell}{space} ") } else { format!(" {space}{cell} ") }
        });
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let rule = widths.iter().enumerate().map(|(column, &width)| {
        if column < left { format!(" {} ", "-".repeat(width)) } else { format!(" {}: ", "-".repeat(width - 1)) }
    });
    let rule = format!("|{}|\n", rule.collect::<Vec<_>>().join("|"));
    let body: String = rows.iter().map(|row| line(&mut row.iter().map(String::as_str))).collect();
    line(&mut header.iter().copied()) + &rule + &body
}

/// A table for reading in a terminal: cells of prose are broken into lines, so that the whole is as wide as the terminal (or
/// 120 columns where there is none).
pub(crate) fn wrapped(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY.row_separator(comfy_table::LineStyle::none()));
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(NO_TERMINAL);
    }
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    // Cells are filled up to their width.
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Columns where output does not go to a terminal.
const NO_TERMINAL: u16 = 120;

/// Names and their values, one a line, the values lined up.
pub(crate) fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    fields.iter().flat_map(|(name, value)| [format!("{name:<width$}  {value}"), "\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cell_may_be_longer_than_a_format_width() {
        // `{:<width$}` panics from 65,536 on; `--logprobs 49152` makes such a cell.
        let long = "x".repeat(70_000);
        let table = super::markdown(&["a"], 1, &[vec![long.clone()], vec!["b".to_owned()]]);
        assert!(table.contains(&format!("| {long} |")));
        assert!(table.lines().all(|line| line.len() == 70_004));
    }

    #[test]
    fn prose_is_broken_into_lines() {
        let table = super::wrapped(&["#", "words"], &[vec!["1".to_owned(), "many words ".repeat(30)]]);
        assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
        assert!(table.lines().count() > 5 && table.contains("many words many"), "{table}");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["pp512".to_owned(), "12.5".to_owned()], vec!["tg128 @ d64".to_owned(), "3".to_owned()]];
        let table = super::markdown(&["test", "t/s"], 1, &rows);
        let expected = "\
| test        |  t/s |
| ----------- | ---: |
| pp512       | 12.5 |
| tg128 @ d64 |    3 |
";
        assert_eq!(table, expected);
    }
}
