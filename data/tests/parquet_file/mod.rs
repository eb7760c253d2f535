//! Small Parquet files as the hub serves them: `messages` as a list of structs.

use std::{fs::File, path::Path, sync::Arc};

use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};

/// Role and content of a turn, or null content.
pub(crate) type Turn<'a> = (&'a str, Option<&'a str>);

const SCHEMA: &str = "message schema {
    optional binary prompt (STRING);
    optional int32 id;
    optional group messages (LIST) {
        repeated group list {
            optional group element {
                optional binary content (STRING);
                optional binary role (STRING);
            }
        }
    }
}";

/// Writes rows, `None` for a row of nulls, a row group of each slice.
pub(crate) fn write(path: &Path, compression: Compression, groups: &[&[Option<Vec<Turn>>]]) {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(true)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let prompts: Vec<_> = rows.iter().flatten().map(|_| ByteArray::from("p")).collect();
        let levels: Vec<_> = rows.iter().map(|row| i16::from(row.is_some())).collect();
        column.typed::<ByteArrayType>().write_batch(&prompts, Some(&levels), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let nulls = vec![0; rows.len()];
        column
            .typed::<parquet::data_type::Int32Type>()
            .write_batch(&[], Some(&nulls), None)
            .unwrap();
        column.close().unwrap();
        for field in [1, 0] {
            let (mut values, mut definition, mut repetition) = (vec![], vec![], vec![]);
            for row in *rows {
                let Some(turns) = row.as_ref().filter(|turns| !turns.is_empty()) else {
                    definition.push(i16::from(row.is_some()));
                    repetition.push(0);
                    continue;
                };
                for (i, (role, content)) in turns.iter().enumerate() {
                    let value = if field == 0 { Some(*role) } else { *content };
                    values.extend(value.map(ByteArray::from));
                    definition.push(if value.is_some() { 4 } else { 3 });
                    repetition.push(i16::from(i > 0));
                }
            }
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&values, Some(&definition), Some(&repetition))
                .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Writes a column of texts, marked as strings or not.
pub(crate) fn write_texts(path: &Path, marked: bool, compression: Compression, texts: &[&[u8]]) {
    let mark = if marked { " (STRING)" } else { "" };
    let schema = format!("message schema {{ required binary text{mark}; }}");
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<_> = texts.iter().map(|text| ByteArray::from(text.to_vec())).collect();
    column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}
