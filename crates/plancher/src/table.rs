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
